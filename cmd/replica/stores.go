package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// startEtcd runs the embedded etcd. stop ends it.
//
// etcd warns about its own settings as it starts and about every listener that is
// closed as it stops. Both are as they should be, and what really goes wrong is
// returned, so only what it says in between reaches the log.
func startEtcd(ctx context.Context, cfg *config, log *zap.Logger) (s *embedetcd.Server, stop func() error, err error) {
	level := zap.NewAtomicLevelAt(zap.FatalLevel)
	s, err = embedetcd.Start(ctx, embedetcd.Config{
		Dir:        filepath.Join(cfg.StateDir, etcdBase),
		ClientAddr: cfg.EmbeddedEtcdClient,
		PeerAddr:   cfg.EmbeddedEtcdPeer,
		Logger:     log.Named("etcd").WithOptions(zap.IncreaseLevel(level)),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("embedded etcd on %s: %w (to share the etcd of another replica, name it with --etcd)", cfg.EmbeddedEtcdClient, err)
	}
	level.SetLevel(zap.WarnLevel)
	return s, func() error {
		level.SetLevel(zap.FatalLevel)
		return s.Close()
	}, nil
}

// openLeases connects to etcd at endpoints, under the address that other replicas
// forward to.
func openLeases(ctx context.Context, cfg *config, endpoints []string, address string, log *zap.Logger) (*etcdlease.Store, error) {
	password, err := readPassword(cfg.EtcdPasswordFile)
	if err != nil {
		return nil, err
	}
	store, err := etcdlease.Open(ctx, etcdlease.Config{
		Options:   etcdlease.Options{Prefix: cfg.EtcdPrefix, Address: address, Logger: log},
		Endpoints: endpoints,
		CAFile:    cfg.EtcdCA,
		CertFile:  cfg.EtcdCert,
		KeyFile:   cfg.EtcdKey,
		Username:  cfg.EtcdUser,
		Password:  password,
	})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(endpoints, ","), err)
	}
	return store, nil
}

// readPassword returns the first line of the file, "" without one.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("etcd-password-file: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if !lines.Scan() || lines.Text() == "" {
		return "", errors.Join(fmt.Errorf("etcd-password-file %s: the first line is empty", path), lines.Err())
	}
	return lines.Text(), nil
}
