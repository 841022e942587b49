package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// A daemon is a part of the control plane that needs an API server and serves its own health and
// metrics on listener. It runs until ctx ends.
type daemon func(ctx context.Context, listener net.Listener, args []string) error

// tied makes a command of run: it takes the released program's own flags, serves on a free
// loopback port, says on standard output when and where it is ready, and ends with standard input.
func tied(run daemon) func(ctx context.Context, args []string) error {
	return func(ctx context.Context, args []string) error {
		ctx, cancel := context.WithCancel(untilStdinCloses(ctx))
		defer cancel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for health and metrics: %w", err)
		}
		go sayWhenReady(ctx, "https://"+listener.Addr().String())
		err = run(ctx, listener, args)
		// Both programs call it an error that they were told to end.
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

func sayWhenReady(ctx context.Context, url string) {
	// The daemon makes its own certificate as it starts, and nobody else can have this port.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport, Timeout: time.Second}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		if answer, err := client.Get(url + "/healthz"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				fmt.Printf("ready: %s\n", url)
				return
			}
		}
		time.Sleep(readyPoll)
	}
}

func runScheduler(ctx context.Context, listener net.Listener, args []string) error {
	opts := scheduleroptions.NewOptions()
	opts.SecureServing.Listener = listener
	if err := parse(args, *opts.Flags, opts.ComponentGlobalsRegistry.Set); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, nil); err != nil {
		return err
	}
	config, stock, err := scheduler.Setup(ctx, opts)
	if err != nil {
		return err
	}
	return scheduler.Run(ctx, config, stock)
}

func runControllerManager(ctx context.Context, listener net.Listener, args []string) error {
	opts, err := controlleroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	opts.SecureServing.Listener = listener
	known, off, aliases := controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases()
	flags := opts.Flags(known, off, aliases)
	if err := parse(args, flags, opts.ComponentGlobalsRegistry.Set); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, nil); err != nil {
		return err
	}
	config, err := opts.Config(ctx, known, off, aliases)
	if err != nil {
		return err
	}
	return controllers.Run(ctx, config.Complete())
}

func parse(args []string, sets cliflag.NamedFlagSets, applyGates func() error) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	return applyGates()
}
