// Package embedetcd runs a one-member etcd inside this process. The replica uses
// it when no etcd is configured, and tests use it to have a real etcd without
// installing one.
//
// One member is as available as the process it lives in. For more, run an etcd
// cluster of its own and give its endpoints to package etcdlease.
//
// # The data directory
//
// A data directory belongs to the cluster that was born in it. [Start] marks an
// empty directory as its own, remembers there which cluster came up in it, and
// refuses every other directory: one that holds anything without that mark, one
// whose contents were exchanged, and one that another process is using. Epochs
// are counted in this directory; if it were replaced unnoticed, epochs would be
// granted a second time.
//
// # Settings
//
// History is compacted after an hour, the space quota is explicit, and the
// election timeout is short enough for etcd to grant leases of one second. The
// server has neither TLS nor authentication, so it listens on loopback only
// unless it is told otherwise.
package embedetcd
