package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	tokens "k8s.io/kubernetes/pkg/serviceaccount"
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

// startTokens runs the controller that fills the Secrets in which an account's lasting token is
// asked for.
func startTokens(ctx context.Context, config *rest.Config, signingKeyFile string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	authority, err := os.ReadFile(config.CAFile)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	key, err := keyutil.PrivateKeyFromFile(signingKeyFile)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	generator, err := tokens.JWTTokenGenerator(tokens.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	controller, err := serviceaccount.NewTokensController(
		klog.FromContext(ctx),
		shared.Core().V1().ServiceAccounts(),
		shared.Core().V1().Secrets(),
		client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: authority},
	)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	shared.Start(ctx.Done())
	go controller.Run(ctx, 1)
	return nil
}
