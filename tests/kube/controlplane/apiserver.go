package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	readyPoll    = 50 * time.Millisecond
	shutdownTime = 10 * time.Second
)

// runAPIServer serves the Kubernetes API from etcd until ctx ends. Everything lives in --dir, so
// that a second start with the same directory and port is a restart that clients survive. The
// file kubeconfig in there appears when the server is ready, and not before.
func runAPIServer(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("apiserver", flag.ExitOnError)
	dir := flags.String("dir", "", "directory for data, certificates, token and kubeconfig (required)")
	port := flags.Int("port", 0, "port on 127.0.0.1; 0 takes a free one")
	kine := flags.String("kine", "", "program that keeps the data, in place of etcd")
	tied := flags.Bool("until-stdin-closes", false, "end when standard input is closed")
	_ = flags.Parse(args)
	if *dir == "" || flags.NArg() > 0 {
		return errors.New("give --dir DIR and no other arguments")
	}
	if *tied {
		ctx = untilStdinCloses(ctx)
	}
	return serve(ctx, *dir, *port, *kine, func(*rest.Config) error { return nil })
}

// serve also calls whenReady, once the API is. An empty kine is etcd.
func serve(ctx context.Context, dir string, port int, kine string, whenReady func(admin *rest.Config) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := errors.Join(os.MkdirAll(dir, 0o700), removeIfThere(kubeconfig)); err != nil {
		return err
	}
	token, err := adminToken(filepath.Join(dir, "tokens.csv"))
	if err != nil {
		return err
	}
	storeURL, stopStore, err := startStore(ctx, dir, kine)
	if err != nil {
		return err
	}
	defer stopStore()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runKubeAPIServer(ctx, listener, apiServerFlags(dir, storeURL)) }()

	client := &rest.Config{
		Host:            "https://" + listener.Addr().String(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "certs", "apiserver.crt")},
		QPS:             -1,
	}
	if err := announce(ctx, client, kubeconfig, ended); err != nil || ctx.Err() != nil {
		return err
	}
	if err := whenReady(client); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(shutdownTime):
		return fmt.Errorf("kube-apiserver did not end within %s of being told to", shutdownTime)
	}
}

// startStore returns the store's URL and what ends it.
func startStore(ctx context.Context, dir, kine string) (string, func(), error) {
	if kine != "" {
		return startKine(ctx, kine, filepath.Join(dir, "kine"), filepath.Join(dir, "kine.log"))
	}
	etcd, url, err := startEtcd(ctx, filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd.log"))
	if err != nil {
		return "", nil, err
	}
	return url, etcd.Close, nil
}

// flagsText is the configuration; it is a file because the tests start released binaries with it too.
//
//go:embed kube-apiserver.flags
var flagsText string

func apiServerFlags(dir, etcdURL string) []string {
	values := map[string]string{"DIR": dir, "ETCD": etcdURL}
	var flags []string
	for line := range strings.Lines(flagsText) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--") {
			flags = append(flags, os.Expand(line, func(name string) string { return values[name] }))
		}
	}
	return flags
}

// runKubeAPIServer does what kube-apiserver's own main does, but on a listener that exists
// already, so that no port is guessed.
func runKubeAPIServer(ctx context.Context, listener net.Listener, args []string) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	opts := options.NewServerRunOptions()
	opts.SecureServing.Listener = listener
	opts.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range opts.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("kube-apiserver flags: %w", err)
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver feature gates: %w", err)
	}
	completed, err := opts.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver options: %w", err)
	}
	if err := utilerrors.NewAggregate(completed.Validate()); err != nil {
		return fmt.Errorf("kube-apiserver options: %w", err)
	}
	return app.Run(ctx, completed)
}

// announce waits until the API is ready, starts what a namespace needs before pods can be made in
// it, and writes the kubeconfig. It returns nil also when ctx ends first.
func announce(ctx context.Context, client *rest.Config, kubeconfig string, ended <-chan error) error {
	for !ready(ctx, client) {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return fmt.Errorf("kube-apiserver ended before it was ready: %w", err)
		case <-time.After(readyPoll):
		}
	}
	if err := startServiceAccounts(ctx, client); err != nil {
		return err
	}
	if err := writeKubeconfig(kubeconfig, client); err != nil {
		return err
	}
	fmt.Printf("ready: %s\n", kubeconfig)
	return nil
}

// ready asks anew each time, because the certificate to trust appears only while the server starts.
func ready(ctx context.Context, config *rest.Config) bool {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// adminToken returns the token in file, and makes file with a new one where there is none.
func adminToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		text = fmt.Appendf(nil, "%s,admin,admin,system:masters\n", rand.Text())
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("admin token: %w", err)
	}
	token, _, _ := strings.Cut(string(text), ",")
	return token, nil
}

func removeIfThere(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
