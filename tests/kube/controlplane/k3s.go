package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Where k3s has its files and ports.
const (
	k3sKubeconfig       = "/etc/rancher/k3s/k3s.yaml"
	k3sServer           = "/var/lib/rancher/k3s/server"
	schedulerKubeconfig = k3sServer + "/cred/scheduler.kubeconfig"
	k3sPort             = 6443
	schedulerAddress    = "127.0.0.1:10259"
)

// runK3s stands in for `k3s server` on a machine of the rollout's tests. It is one process with
// k3s' paths, ports and habits: systemd hears that it is ready when the API is, kube-scheduler
// starts after that and takes the whole server along when it exits. There is no kubelet and no
// network here: the nodes that it is given are ready for ever, and their pods never run.
func runK3s(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	var nodes nodeList
	flags.Var(&nodes, "node", "NAME=ADDRESS/ARCHITECTURE of a node that is there and ready; may be repeated")
	_ = flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	schedulerArgs, err := readSchedulerArgs("/etc/rancher/k3s")
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(k3sKubeconfig), 0o755),
		os.MkdirAll(filepath.Dir(schedulerKubeconfig), 0o700),
	); err != nil {
		return err
	}
	// kube-apiserver would say by itself that it is ready, before all else here is.
	socket := os.Getenv("NOTIFY_SOCKET")
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = serve(ctx, k3sServer, k3sPort, "", func(client *rest.Config) error {
		if err := startTokens(ctx, client, filepath.Join(k3sServer, "certs", "apiserver.key")); err != nil {
			return err
		}
		for _, file := range []string{k3sKubeconfig, schedulerKubeconfig} {
			if err := writeKubeconfig(file, client); err != nil {
				return err
			}
		}
		if err := nodes.register(ctx, kubernetes.NewForConfigOrDie(client)); err != nil {
			return err
		}
		if err := sayReady(socket); err != nil {
			return err
		}
		go func() { cancel(fmt.Errorf("scheduler exited: %w", runK3sScheduler(ctx, schedulerArgs))) }()
		return nil
	})
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func sayReady(socket string) error {
	if err := os.Setenv("NOTIFY_SOCKET", socket); err != nil {
		return err
	}
	_, err := systemd.SdNotify(true, systemd.SdNotifyReady)
	return err
}

func runK3sScheduler(ctx context.Context, args []string) error {
	listener, err := net.Listen("tcp", schedulerAddress)
	if err != nil {
		return err
	}
	own := []string{
		"--kubeconfig=" + schedulerKubeconfig,
		"--authorization-kubeconfig=" + schedulerKubeconfig,
		"--authentication-kubeconfig=" + schedulerKubeconfig,
		"--leader-elect=false",
		"--profiling=false",
	}
	return runScheduler(ctx, listener, append(own, args...))
}
