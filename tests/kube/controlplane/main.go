// Command controlplane is the Kubernetes control plane that Leadline's tests talk to: the
// released Kubernetes code, without containers, kubelets or root. One binary holds every part,
// because the parts share most of their packages; each part is one file and one line below.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

type command struct {
	summary string
	run     func(ctx context.Context, args []string) error
}

var commands = map[string]command{
	"apiserver":               {"etcd and kube-apiserver in one process", runAPIServer},
	"etcd":                    {"etcd as it is released", runReleasedEtcd},
	"kube-apiserver":          {"kube-apiserver as it is released", runReleasedAPIServer},
	"oracle":                  {"what kube-scheduler's filter and preference plugins say of given objects", runOracle},
	"kube-scheduler":          {"kube-scheduler, on a free port", tied(runScheduler)},
	"kube-controller-manager": {"kube-controller-manager, on a free port", tied(runControllerManager)},
	"server":                  {"a stand-in for k3s on a machine of its own", runK3s},
	"kubectl":                 {"kubectl as it is released", runKubectl},
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	chosen, known := commands[os.Args[1]]
	if !known {
		usage()
	}
	ctx, forget := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the process at once, in case the orderly end hangs.
	context.AfterFunc(ctx, forget)
	if err := chosen.run(ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane COMMAND [FLAGS]; -h after a command lists its flags")
	for name, c := range commands {
		fmt.Fprintf(os.Stderr, "  %-14s %s\n", name, c.summary)
	}
	os.Exit(2)
}

// untilStdinCloses ends ctx when standard input does. Whoever starts a control plane holds the
// other end of that pipe, so a test run that dies, however it dies, takes its servers along.
func untilStdinCloses(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}
