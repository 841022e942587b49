package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

// startServiceAccounts runs the one controller without which no pod can be made: it gives every
// namespace its default service account. So the pods of the tests carry the same projected token
// volume as pods anywhere else.
func startServiceAccounts(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("service accounts: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	controller, err := serviceaccount.NewServiceAccountsController(
		klog.FromContext(ctx),
		shared.Core().V1().ServiceAccounts(),
		shared.Core().V1().Namespaces(),
		client,
		serviceaccount.DefaultServiceAccountsControllerOptions(),
	)
	if err != nil {
		return fmt.Errorf("service accounts: %w", err)
	}
	shared.Start(ctx.Done())
	go controller.Run(ctx, 1)
	return nil
}
