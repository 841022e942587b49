package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// startKine runs kine over SQLite, the store of a k3s server alone, as k3s does: on a socket in
// dir. It returns the URL that kube-apiserver takes for etcd's, and what ends kine.
func startKine(ctx context.Context, program, dir, logFile string) (url string, stop func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	socket := filepath.Join(dir, "kine.sock")
	url = "unix://" + socket
	database := filepath.Join(dir, "state.db")
	kine := exec.Command(program,
		"--endpoint", "sqlite://"+database+"?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate",
		"--listen-address", url,
		"--metrics-bind-address", "0",
	)
	kine.Stdout, kine.Stderr = log, log
	kine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The signal comes when the thread that started the process ends, not the whole program.
		runtime.LockOSThread()
		started <- kine.Start()
		_ = kine.Wait()
		close(ended)
	}()
	if err := <-started; err != nil {
		return "", nil, fmt.Errorf("start kine: %w", err)
	}
	stop = func() {
		_ = kine.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(shutdownTime):
			_ = kine.Process.Kill()
		}
	}
	for {
		if connection, err := net.Dial("unix", socket); err == nil {
			return url, stop, connection.Close()
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-ended:
			err = errors.New("it ended")
		case <-time.After(readyPoll):
			continue
		}
		stop()
		return "", nil, fmt.Errorf("kine did not get ready, see %s: %w", logFile, err)
	}
}
