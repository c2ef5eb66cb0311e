//go:build linux

package main

import (
	"encoding/json"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// A memberConfig is what a process that is an etcd member is told.
type memberConfig struct {
	Name, Dir, Address, Cluster string
}

const clientPort, peerPort = ":2379", ":2380"

// runMember serves until the process is killed. Nothing is synced: processes die here, not
// machines.
func runMember(text string) error {
	var m memberConfig
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, m.Dir, m.Cluster
	client, peer := url.URL{Scheme: "http", Host: m.Address + clientPort}, url.URL{Scheme: "http", Host: m.Address + peerPort}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.LogLevel, cfg.UnsafeNoFsync = "warn", true
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-etcd.Err()
}
