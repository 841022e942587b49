package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// leftOut would need more of a scheduler than its filters do: a manager of devices, and a queue.
var leftOut = sets.New(names.DynamicResources, names.DefaultPreemption)

// A filterPlugin is a plugin that can keep a pod from a node, by whichever of its three parts.
type filterPlugin struct {
	name       string
	preEnqueue fwk.PreEnqueuePlugin
	preFilter  fwk.PreFilterPlugin
	filter     fwk.FilterPlugin
}

// The judges are the plugins of kube-scheduler's default profile that a case is shown to.
type judges struct {
	filters []filterPlugin
	scorers []scorePlugin
	// preemptor is nil unless it is asked for.
	preemptor *preemptor
}

// newJudges makes those plugins of kube-scheduler's default profile, with default arguments,
// that can refuse a node or that score by a pod's preferences. They look at state as it is when
// they are asked.
func newJudges(ctx context.Context, state *cluster) (*judges, error) {
	config, err := latest.Default()
	if err != nil {
		return nil, err
	}
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithInformerFactory(state.factory),
		frameworkruntime.WithSnapshotSharedLister(state),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(state.factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	profile := config.Profiles[0]
	arguments := map[string]runtime.Object{}
	for _, plugin := range profile.PluginConfig {
		arguments[plugin.Name] = plugin.Args
	}
	registry := plugins.NewInTreeRegistry()
	found := &judges{}
	for _, enabled := range profile.Plugins.MultiPoint.Enabled {
		if leftOut.Has(enabled.Name) {
			continue
		}
		plugin, err := registry[enabled.Name](ctx, arguments[enabled.Name], handle)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", enabled.Name, err)
		}
		if one, refuses := asFilter(plugin); refuses {
			found.filters = append(found.filters, one)
		}
		if scorer, scores := plugin.(fwk.ScorePlugin); scores && preferenceScorers.Has(enabled.Name) {
			before, _ := plugin.(fwk.PreScorePlugin)
			found.scorers = append(found.scorers, scorePlugin{before, scorer, int64(enabled.Weight)})
		}
	}
	return found, nil
}

func asFilter(plugin fwk.Plugin) (filterPlugin, bool) {
	one := filterPlugin{name: plugin.Name()}
	one.preEnqueue, _ = plugin.(fwk.PreEnqueuePlugin)
	one.preFilter, _ = plugin.(fwk.PreFilterPlugin)
	one.filter, _ = plugin.(fwk.FilterPlugin)
	return one, one.preEnqueue != nil || one.filter != nil
}

// verdicts says for each node why this plugin refuses it, or nil. The order is kube-scheduler's:
// a pod that may not enter the queue or that fails before the filters goes nowhere, and a plugin
// that skips the pod has no objection.
func (p filterPlugin) verdicts(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) map[string]*string {
	if p.preEnqueue != nil {
		if status := p.preEnqueue.PreEnqueue(ctx, pod); !status.IsSuccess() {
			return everywhere(nodes, refusal(status))
		}
	}
	state := framework.NewCycleState()
	var among *fwk.PreFilterResult
	if p.preFilter != nil {
		result, status := p.preFilter.PreFilter(ctx, state, pod, nodes)
		if !status.IsSuccess() {
			return everywhere(nodes, refusal(status))
		}
		among = result
	}
	verdicts := everywhere(nodes, nil)
	for _, node := range nodes {
		name := node.Node().Name
		switch {
		case !among.AllNodes() && !among.NodeNames.Has(name):
			reason := "not among the nodes that can be asked about"
			verdicts[name] = &reason
		case p.filter != nil:
			verdicts[name] = refusal(p.filter.Filter(ctx, state, pod, node))
		}
	}
	return verdicts
}

func everywhere(nodes []fwk.NodeInfo, reason *string) map[string]*string {
	verdicts := make(map[string]*string, len(nodes))
	for _, node := range nodes {
		verdicts[node.Node().Name] = reason
	}
	return verdicts
}

func refusal(status *fwk.Status) *string {
	if status.IsSuccess() || status.IsSkip() {
		return nil
	}
	reason := status.Message()
	if status.Code() == fwk.Error {
		reason = "error: " + reason
	}
	return &reason
}
