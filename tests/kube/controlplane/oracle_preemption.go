package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// A choice is what the plugin DefaultPreemption makes of a case in which the pod fits nowhere.
type choice struct {
	// Fits are the nodes that the pod fits without preemption; with any, nothing else is said.
	Fits []string `json:"fits,omitempty"`
	// Refused says why the pod may preempt nobody, or is empty.
	Refused string `json:"refused,omitempty"`
	// Candidates are by node.
	Candidates map[string]victims `json:"candidates,omitempty"`
	// Chosen is one of the candidates; the plugin takes any of those that tie.
	Chosen string `json:"chosen,omitempty"`
}

type victims struct {
	// Pods are namespace/name, the most important first.
	Pods       []string `json:"pods"`
	Violations int64    `json:"violations"`
}

// A preemptor is kube-scheduler's framework with its default filters, and DefaultPreemption, which
// looks at all nodes.
type preemptor struct {
	handle framework.Framework
	plugin *defaultpreemption.DefaultPreemption
}

func newPreemptor(ctx context.Context, state *cluster) (*preemptor, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	enabled := &profile.Plugins.MultiPoint.Enabled
	*enabled = slices.DeleteFunc(*enabled, func(each config.Plugin) bool { return leftOut.Has(each.Name) })
	profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(each config.PluginConfig) bool {
		return leftOut.Has(each.Name)
	})
	handle, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithInformerFactory(state.factory),
		frameworkruntime.WithSnapshotSharedLister(state),
		frameworkruntime.WithPodNominator(state),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(state.factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	arguments := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 1}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(ctx, arguments, handle, features)
	return &preemptor{handle, plugin}, err
}

func (p *preemptor) choose(ctx context.Context, stored *scene, nodes []fwk.NodeInfo) (*choice, error) {
	state := framework.NewCycleState()
	refusals := framework.NewDefaultNodeToStatus()
	found := &choice{Candidates: map[string]victims{}}
	among, status, _ := p.handle.RunPreFilterPlugins(ctx, state, stored.pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		refusals.SetAbsentNodesStatus(status)
		nodes = nil
	}
	for _, node := range nodes {
		name := node.Node().Name
		if !among.AllNodes() && !among.NodeNames.Has(name) {
			refusals.Set(name, fwk.NewStatus(fwk.UnschedulableAndUnresolvable))
			continue
		}
		switch status := p.handle.RunFilterPluginsWithNominatedPods(ctx, state, stored.pod, node); {
		case status.IsSuccess():
			found.Fits = append(found.Fits, name)
		case status.IsRejected():
			refusals.Set(name, status)
		default:
			return nil, fmt.Errorf("node %s: %w", name, status.AsError())
		}
	}
	if len(found.Fits) > 0 {
		return found, nil
	}
	nominated := refusals.Get(stored.pod.Status.NominatedNodeName)
	may, why := p.plugin.PodEligibleToPreemptOthers(ctx, stored.pod, nominated)
	if !may {
		found.Refused = why
		return found, nil
	}
	potential, err := refusals.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil || len(potential) == 0 {
		return found, err
	}
	budgets := make([]*policyv1.PodDisruptionBudget, 0)
	for _, object := range stored.objects["podDisruptionBudgets"] {
		budgets = append(budgets, object.(*policyv1.PodDisruptionBudget))
	}
	count := int32(len(potential))
	candidates, _, err := p.plugin.Evaluator.DryRunPreemption(ctx, state, stored.pod, potential, budgets, 0, count)
	if err != nil {
		return nil, err
	}
	for _, each := range candidates {
		var names []string
		for _, pod := range each.Victims().Pods {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
		found.Candidates[each.Name()] = victims{names, each.Victims().NumPDBViolations}
	}
	if chosen := p.plugin.Evaluator.SelectCandidate(ctx, candidates); chosen != nil {
		found.Chosen = chosen.Name()
	}
	return found, nil
}

// NominatedPodsForNode are the pods of the case that wait for room on this node.
func (c *cluster) NominatedPodsForNode(name string) []fwk.PodInfo {
	return c.nominated[name]
}

var errFixed = errors.New("the oracle's cases do not change")

// AddNominatedPod is for a scheduler that schedules.
func (c *cluster) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) { panic(errFixed) }

// DeleteNominatedPodIfExists is for a scheduler that schedules.
func (c *cluster) DeleteNominatedPodIfExists(*v1.Pod) { panic(errFixed) }

// UpdateNominatedPod is for a scheduler that schedules.
func (c *cluster) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo) { panic(errFixed) }

var _ fwk.PodNominator = &cluster{}

func nominatedFrom(pods []any) (map[string][]fwk.PodInfo, error) {
	nominated := map[string][]fwk.PodInfo{}
	for _, object := range pods {
		pod := object.(*v1.Pod)
		node := pod.Status.NominatedNodeName
		if node == "" || pod.Spec.NodeName != "" {
			continue
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, err
		}
		nominated[node] = append(nominated[node], info)
	}
	return nominated, nil
}
