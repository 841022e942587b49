package main

import (
	"context"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs a one-member etcd that keeps its data in dir and returns it with the URL that
// clients use. It answers on a free loopback port only.
func startEtcd(ctx context.Context, dir, logFile string) (*embed.Etcd, string, error) {
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{logFile}
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.ListenClientUrls = []url.URL{loopback}
	cfg.AdvertiseClientUrls = []url.URL{loopback}
	cfg.ListenPeerUrls = []url.URL{loopback}
	cfg.AdvertisePeerUrls = []url.URL{loopback}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// A test's data need not outlive the machine.
	cfg.UnsafeNoFsync = true
	// A lone member waits one election time before it elects itself.
	cfg.TickMs, cfg.ElectionMs = 10, 100

	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd in %s: %w", dir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, "http://" + server.Clients[0].Addr().String(), nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	return nil, "", fmt.Errorf("etcd did not get ready, see %s: %w", logFile, err)
}
