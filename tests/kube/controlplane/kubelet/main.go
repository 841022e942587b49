// Command kubelet is kubelet as it is released, built from the control plane's module so that both
// share a version and the build cache. It is a program of its own, because kubelet's packages
// register flags for the whole process.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
