package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// preferenceScorers score by what pods and nodes state as a preference. The others weigh resources
// and images, which is what Leadline's strategies do.
var preferenceScorers = sets.New(names.NodeAffinity, names.InterPodAffinity, names.PodTopologySpread, names.TaintToleration)

type scorePlugin struct {
	before fwk.PreScorePlugin
	score  fwk.ScorePlugin
	weight int64
}

// scores are what one plugin says of the nodes that no filter refuses: raw as its Score gives
// them, normalized as kube-scheduler weighs them.
type scores struct {
	Weight     int64            `json:"weight"`
	Skipped    bool             `json:"skipped"`
	Raw        map[string]int64 `json:"raw,omitempty"`
	Normalized map[string]int64 `json:"normalized,omitempty"`
}

func (p scorePlugin) scores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*scores, error) {
	found := &scores{Weight: p.weight}
	state := framework.NewCycleState()
	switch status := p.before.PreScore(ctx, state, pod, nodes); {
	case status.IsSkip():
		found.Skipped = true
		return found, nil
	case !status.IsSuccess():
		return nil, fmt.Errorf("%s: %s", p.score.Name(), status.Message())
	}
	list := make(fwk.NodeScoreList, 0, len(nodes))
	for _, node := range nodes {
		score, status := p.score.Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return nil, fmt.Errorf("%s: %s", p.score.Name(), status.Message())
		}
		list = append(list, fwk.NodeScore{Name: node.Node().Name, Score: score})
	}
	found.Raw = byNode(list)
	if status := p.score.ScoreExtensions().NormalizeScore(ctx, state, pod, list); !status.IsSuccess() {
		return nil, fmt.Errorf("%s: %s", p.score.Name(), status.Message())
	}
	found.Normalized = byNode(list)
	return found, nil
}

func byNode(list fwk.NodeScoreList) map[string]int64 {
	found := make(map[string]int64, len(list))
	for _, each := range list {
		found[each.Name] = each.Score
	}
	return found
}
