package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
)

type resource struct {
	example  runtime.Object
	strategy rest.RESTCreateStrategy
}

// resources are the lists that a case may have.
var resources = map[string]resource{
	"nodes":                  {&v1.Node{}, node.Strategy},
	"pods":                   {&v1.Pod{}, pod.Strategy},
	"namespaces":             {&v1.Namespace{}, namespace.Strategy},
	"services":               {&v1.Service{}, service.Strategy},
	"replicaSets":            {&appsv1.ReplicaSet{}, replicaset.Strategy},
	"statefulSets":           {&appsv1.StatefulSet{}, statefulset.Strategy},
	"replicationControllers": {&v1.ReplicationController{}, replicationcontroller.Strategy},
	"pvcs":                   {&v1.PersistentVolumeClaim{}, persistentvolumeclaim.Strategy},
	"pvs":                    {&v1.PersistentVolume{}, persistentvolume.Strategy},
	"storageClasses":         {&storagev1.StorageClass{}, storageclass.Strategy},
	"csiNodes":               {&storagev1.CSINode{}, csinode.Strategy},
	"csiDrivers":             {&storagev1.CSIDriver{}, csidriver.Strategy},
	"csiStorageCapacities":   {&storagev1.CSIStorageCapacity{}, csistoragecapacity.Strategy},
	"podDisruptionBudgets":   {&policyv1.PodDisruptionBudget{}, poddisruptionbudget.Strategy},
	"volumeAttachments":      {&storagev1.VolumeAttachment{}, volumeattachment.Strategy},
}

// A scene is a case after the API server's part: lists by the names in resources, and the pod.
type scene struct {
	objects map[string][]any
	pod     *v1.Pod
}

func (s *scene) asMap() map[string]any {
	all := make(map[string]any, len(s.objects)+1)
	for name, objects := range s.objects {
		all[name] = objects
	}
	all["pod"] = s.pod
	return all
}

// strict refuses fields that do not exist: a case with a typing error would prove nothing.
var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// store does with the objects of a case what an API server does before it stores them, because
// the plugins rely on it: it fills in defaults, completes selectors and refuses what is not valid.
// Unlike there, a status that is given stays, and namespaces that pods name exist.
func store(ctx context.Context, given map[string]json.RawMessage) (*scene, error) {
	stored := &scene{objects: map[string][]any{}}
	for name, raw := range given {
		if name == "pod" {
			object, err := create(ctx, raw, resources["pods"])
			if err != nil {
				return nil, fmt.Errorf("pod: %w", err)
			}
			stored.pod = object.(*v1.Pod)
			continue
		}
		resource, known := resources[name]
		if !known {
			names := slices.Sorted(maps.Keys(resources))
			return nil, fmt.Errorf("a case has no %q, but pod and any of %v", name, names)
		}
		var raws []json.RawMessage
		if err := json.Unmarshal(raw, &raws); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for index, raw := range raws {
			object, err := create(ctx, raw, resource)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", name, index, err)
			}
			stored.objects[name] = append(stored.objects[name], object)
		}
	}
	return stored, stored.addNamespaces(ctx)
}

func create(ctx context.Context, raw json.RawMessage, resource resource) (runtime.Object, error) {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(resource.example)
	if err != nil {
		return nil, err
	}
	object, _, err := strict.UniversalDecoder().Decode(raw, &kinds[0], nil)
	if err != nil {
		return nil, err
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	if resource.strategy.NamespaceScoped() && metadata.GetNamespace() == "" {
		metadata.SetNamespace(metav1.NamespaceDefault)
	}
	if metadata.GetUID() == "" {
		path := fmt.Sprintf("%s/%s/%s", kinds[0].Kind, metadata.GetNamespace(), metadata.GetName())
		metadata.SetUID(types.UID(path))
	}
	prepare(ctx, object, resource.strategy)
	if err := resource.strategy.Validate(ctx, object).ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s: %w", metadata.GetName(), err)
	}
	return legacyscheme.Scheme.ConvertToVersion(object, kinds[0].GroupVersion())
}

// prepare keeps the status, with which nobody can create an object but which tests are about.
func prepare(ctx context.Context, object runtime.Object, strategy rest.RESTCreateStrategy) {
	status := reflect.ValueOf(object).Elem().FieldByName("Status")
	if !status.IsValid() {
		strategy.PrepareForCreate(ctx, object)
		return
	}
	given := reflect.New(status.Type()).Elem()
	given.Set(status)
	strategy.PrepareForCreate(ctx, object)
	if !given.IsZero() {
		status.Set(given)
	}
}

func (s *scene) addNamespaces(ctx context.Context) error {
	missing := map[string]bool{}
	if s.pod != nil {
		missing[s.pod.Namespace] = true
	}
	for _, object := range s.objects["pods"] {
		missing[object.(*v1.Pod).Namespace] = true
	}
	for _, object := range s.objects["namespaces"] {
		delete(missing, object.(*v1.Namespace).Name)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		raw := fmt.Appendf(nil, `{"metadata": {"name": %q}}`, name)
		object, err := create(ctx, raw, resources["namespaces"])
		if err != nil {
			return err
		}
		s.objects["namespaces"] = append(s.objects["namespaces"], object)
	}
	return nil
}
