package main

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	backend "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// A cluster is what the plugins look at. They keep their listers and lister of nodes for life, so
// a new case replaces what these show; nothing is asked of any server.
type cluster struct {
	*backend.Snapshot
	factory   informers.SharedInformerFactory
	informers map[string]*shownInformer
	// nominated are pods without a node by the node that is nominated for them.
	nominated map[string][]fwk.PodInfo
}

func newCluster() *cluster {
	c := &cluster{
		Snapshot:  backend.NewEmptySnapshot(),
		factory:   informers.NewSharedInformerFactory(nil, 0),
		informers: map[string]*shownInformer{},
	}
	for name, resource := range resources {
		shown := &shownInformer{SharedIndexInformer: cache.NewSharedIndexInformer(
			&cache.ListWatch{}, resource.example, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		)}
		c.informers[name] = shown
		// Whoever asks the factory for this type from now on gets the one above.
		c.factory.InformerFor(resource.example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return shown
		})
	}
	return c
}

// show replaces the whole cluster by that of the case, pruned as kube-scheduler prunes its own
// view: pods that have ended are not watched, and those of unknown nodes are not counted.
func (c *cluster) show(stored *scene) error {
	var nodes []*v1.Node
	known := sets.New[string]()
	for _, object := range stored.objects["nodes"] {
		node := object.(*v1.Node)
		nodes = append(nodes, node)
		known.Insert(node.Name)
	}
	var residents []*v1.Pod
	watched := []any{stored.pod}
	for _, object := range stored.objects["pods"] {
		pod := object.(*v1.Pod)
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		watched = append(watched, pod)
		if known.Has(pod.Spec.NodeName) {
			residents = append(residents, pod)
		}
	}
	for name, informer := range c.informers {
		if name == "pods" {
			informer.show(watched)
		} else {
			informer.show(stored.objects[name])
		}
	}
	c.Snapshot = backend.NewSnapshot(residents, nodes)
	var err error
	c.nominated, err = nominatedFrom(stored.objects["pods"])
	return err
}

var _ fwk.SharedLister = &cluster{}

// A shownInformer is never run: it holds what it is told to, and its handlers know at once.
type shownInformer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func (i *shownInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return i.SharedIndexInformer.AddEventHandler(handler)
}

func (i *shownInformer) show(objects []any) {
	before := i.GetStore().List()
	// Replacing fails only for objects without a name, and stored ones have one.
	_ = i.GetIndexer().Replace(objects, "")
	for _, handler := range i.handlers {
		for _, object := range before {
			handler.OnDelete(object)
		}
		for _, object := range objects {
			handler.OnAdd(object, false)
		}
	}
}
