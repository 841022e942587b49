package main

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// A nodeList is what the kubelets of a cluster would have registered.
type nodeList []*v1.Node

func (l *nodeList) String() string { return fmt.Sprintf("%d nodes", len(*l)) }

// Set adds a node given as NAME=ADDRESS/ARCHITECTURE.
func (l *nodeList) Set(text string) error {
	name, rest, named := strings.Cut(text, "=")
	address, architecture, known := strings.Cut(rest, "/")
	if !named || !known {
		return fmt.Errorf("%s: expected NAME=ADDRESS/ARCHITECTURE", text)
	}
	size := v1.ResourceList{
		v1.ResourceCPU:    quantity.MustParse("4"),
		v1.ResourceMemory: quantity.MustParse("4Gi"),
		v1.ResourcePods:   quantity.MustParse("110"),
	}
	*l = append(*l, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1.LabelHostname:   name,
			v1.LabelOSStable:   "linux",
			v1.LabelArchStable: architecture,
		}},
		Status: v1.NodeStatus{
			Capacity:    size,
			Allocatable: size,
			Addresses:   []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}},
			Conditions: []v1.NodeCondition{{
				Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "StandIn", Message: "there is no kubelet",
			}},
		},
	})
	return nil
}

func (l *nodeList) register(ctx context.Context, client kubernetes.Interface) error {
	for _, node := range *l {
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		// Every new node is tainted until a controller, which is not here, sees that it is ready.
		bare := []byte(`{"spec":{"taints":null}}`)
		if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, bare, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return nil
}
