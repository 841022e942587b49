package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// runKubectl is kubectl as it is released, but like k3s' own it reads the admin's kubeconfig
// of this machine unless it is told of another.
func runKubectl(_ context.Context, args []string) error {
	if os.Getenv("KUBECONFIG") == "" {
		if err := os.Setenv("KUBECONFIG", k3sKubeconfig); err != nil {
			return err
		}
	}
	os.Args = append([]string{"kubectl"}, args...)
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return nil
}
