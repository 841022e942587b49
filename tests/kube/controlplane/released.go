package main

import (
	"context"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// The released programs, flags and all: with them the tests try the way that takes etcd and
// kube-apiserver from KUBEBUILDER_ASSETS. Both look after signals themselves.

func runReleasedEtcd(_ context.Context, args []string) error {
	etcdmain.Main(append([]string{"etcd"}, args...))
	return nil
}

func runReleasedAPIServer(_ context.Context, args []string) error {
	command := app.NewAPIServerCommand()
	command.SetArgs(args)
	os.Exit(cli.Run(command))
	return nil
}
