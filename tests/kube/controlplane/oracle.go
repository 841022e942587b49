package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// An answer is one line of output, for one line of input that holds the objects of a cluster by
// the names in resources, and under "pod" the one that asks for a place.
type answer struct {
	// Nodes says for each node and plugin why the pod is refused, or null where it is not.
	Nodes map[string]map[string]*string `json:"nodes,omitempty"`
	// Scores are by plugin what it gives to each node that no plugin refuses.
	Scores map[string]*scores `json:"scores,omitempty"`
	// Preemption is what DefaultPreemption chooses, if it is asked.
	Preemption *choice `json:"preemption,omitempty"`
	// Stored are the objects as an API server would have stored them, which is what was judged.
	Stored map[string]any `json:"stored,omitempty"`
	// Error says why there is no verdict.
	Error string `json:"error,omitempty"`
}

// runOracle answers with kube-scheduler's own plugins, and without an API server, which nodes a
// pod could go to: one line of JSON for each line, until the input ends. With --preemption it
// also answers who would have to make room for a pod that fits nowhere.
func runOracle(ctx context.Context, args []string) error {
	if len(args) > 0 && !slices.Equal(args, []string{"--preemption"}) {
		return errors.New("give cases on standard input, and no argument but --preemption")
	}
	metrics.Register()
	state := newCluster()
	plugins, err := newJudges(ctx, state)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		if plugins.preemptor, err = newPreemptor(ctx, state); err != nil {
			return err
		}
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := output.Encode(reply(ctx, line, state, plugins)); err != nil {
			return err
		}
	}
}

func reply(ctx context.Context, line []byte, state *cluster, plugins *judges) answer {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(line, &given); err != nil {
		return answer{Error: fmt.Sprintf("no case: %v", err)}
	}
	stored, err := store(ctx, given)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found, err := judge(ctx, stored, state, plugins)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found.Stored = stored.asMap()
	return *found
}

func judge(ctx context.Context, stored *scene, state *cluster, plugins *judges) (*answer, error) {
	switch {
	case stored.pod == nil:
		return nil, errors.New(`the case has no "pod"`)
	case stored.pod.Spec.NodeName != "":
		return nil, errors.New("the pod is on a node already")
	case len(stored.pod.Spec.ResourceClaims) > 0:
		return nil, errors.New("resource claims are for a plugin that is left out here")
	}
	if err := state.show(stored); err != nil {
		return nil, err
	}
	nodes, err := state.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	verdicts := make(map[string]map[string]*string, len(nodes))
	for _, node := range nodes {
		verdicts[node.Node().Name] = make(map[string]*string, len(plugins.filters))
	}
	for _, plugin := range plugins.filters {
		for node, reason := range plugin.verdicts(ctx, stored.pod, nodes) {
			verdicts[node][plugin.name] = reason
		}
	}
	var accepted []fwk.NodeInfo
	for _, node := range nodes {
		if !refused(verdicts[node.Node().Name]) {
			accepted = append(accepted, node)
		}
	}
	found := &answer{Nodes: verdicts, Scores: map[string]*scores{}}
	if plugins.preemptor != nil {
		if found.Preemption, err = plugins.preemptor.choose(ctx, stored, nodes); err != nil {
			return nil, err
		}
	}
	if len(accepted) == 0 {
		return found, nil
	}
	for _, plugin := range plugins.scorers {
		if found.Scores[plugin.score.Name()], err = plugin.scores(ctx, stored.pod, accepted); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func refused(verdicts map[string]*string) bool {
	for _, reason := range verdicts {
		if reason != nil {
			return true
		}
	}
	return false
}
