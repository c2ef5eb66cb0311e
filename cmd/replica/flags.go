package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore/blobstore"
	"github.com/leaseholddb/leasehold/router"
)

// A config is everything that can be set about a serving replica.
type config struct {
	Listen    string
	Advertise string
	Name      string
	StateDir  string

	accessConfig

	Etcd             []string
	EtcdPrefix       string
	EtcdCA           string
	EtcdCert         string
	EtcdKey          string
	EtcdUser         string
	EtcdPasswordFile string

	EmbeddedEtcdClient string
	EmbeddedEtcdPeer   string

	Copies     string
	KeepCopies int

	LeaseTTL         time.Duration
	LeaseMargin      time.Duration // 0: the router's default
	SnapshotEvery    time.Duration
	DrillEvery       time.Duration
	DrainTimeout     time.Duration
	MinTenure        time.Duration
	ParkTimeout      time.Duration
	MaxTenants       int
	CloseConcurrency int
	CopyConcurrency  int
	IdleClose        time.Duration
	IdleHandoff      time.Duration

	BodyTimeout time.Duration
}

const (
	defaultListen             = "127.0.0.1:8420"
	defaultStateDir           = "leasehold-data"
	defaultEtcdPrefix         = "/leasehold/"
	defaultEmbeddedEtcdClient = "127.0.0.1:2379"
	defaultEmbeddedEtcdPeer   = "127.0.0.1:2380"
	defaultSnapshotEvery      = 30 * time.Second
	defaultDrillEvery         = 24 * time.Hour
	defaultIdleHandoff        = time.Hour

	copiesBase = "copies" // under the state directory, if --copies is not set
	etcdBase   = "etcd"   // under the state directory, for an embedded etcd
)

func defaultConfig() *config {
	return &config{
		Listen:             defaultListen,
		Name:               defaultName(),
		StateDir:           defaultStateDir,
		EtcdPrefix:         defaultEtcdPrefix,
		EmbeddedEtcdClient: defaultEmbeddedEtcdClient,
		EmbeddedEtcdPeer:   defaultEmbeddedEtcdPeer,
		KeepCopies:         router.DefaultKeepCopies,
		LeaseTTL:           router.DefaultLeaseTTL,
		SnapshotEvery:      defaultSnapshotEvery,
		DrillEvery:         defaultDrillEvery,
		DrainTimeout:       router.DefaultDrainTimeout,
		MinTenure:          router.DefaultMinTenure,
		ParkTimeout:        httpapi.DefaultParkTimeout,
		CloseConcurrency:   router.DefaultCloseConcurrency,
		CopyConcurrency:    router.DefaultCopyConcurrency,
		IdleClose:          router.DefaultIdleClose,
		IdleHandoff:        defaultIdleHandoff,
		BodyTimeout:        httpapi.DefaultBodyTimeout,
	}
}

func (c *config) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Listen, "listen", c.Listen, "`ADDRESS` to serve HTTP on, port 0 for a free one; other than loopback only with TLS and tokens")
	f.StringVar(&c.Advertise, "advertise", "", "`URL` at which other replicas reach this one (default http://<listen address>, or https:// with TLS)")
	c.accessConfig.addFlags(f)
	f.StringVar(&c.Name, "name", c.Name, "`NAME` that the replica's id begins with; each start adds a suffix of its own")
	f.StringVar(&c.StateDir, "state-dir", c.StateDir, "`DIR` for local ledgers; one replica at a time")
	f.StringSliceVar(&c.Etcd, "etcd", nil, "`ENDPOINTS` of an etcd, separated by commas (default an embedded one)")
	f.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "`PREFIX` of every key in etcd")
	f.StringVar(&c.EtcdCA, "etcd-ca", "", "PEM `FILE` of the authority for etcd's certificate")
	f.StringVar(&c.EtcdCert, "etcd-cert", "", "PEM `FILE` of this client's certificate for etcd")
	f.StringVar(&c.EtcdKey, "etcd-key", "", "PEM `FILE` of the key to --etcd-cert")
	f.StringVar(&c.EtcdUser, "etcd-user", "", "`NAME` of the etcd user")
	f.StringVar(&c.EtcdPasswordFile, "etcd-password-file", "", "`FILE` with the etcd user's password on its first line")
	f.StringVar(&c.EmbeddedEtcdClient, "embedded-etcd-client", c.EmbeddedEtcdClient, "`ADDRESS` of the embedded etcd for clients; port 0 for a free one")
	f.StringVar(&c.EmbeddedEtcdPeer, "embedded-etcd-peer", c.EmbeddedEtcdPeer, "`ADDRESS` of the embedded etcd for members; port 0 for a free one")
	f.StringVar(&c.Copies, "copies", "", "`DIR` or s3://bucket/prefix?endpoint=…&region=… for durable copies, shared by all replicas (required with --etcd; default <state-dir>/"+copiesBase+")")
	f.IntVar(&c.KeepCopies, "keep-copies", c.KeepCopies, "newest `N` copies of a tenant that are kept")
	f.DurationVar(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "how long a crashed replica keeps others out of its tenants")
	f.DurationVar(&c.LeaseMargin, "lease-margin", 0, "how long before that a replica which cannot renew stops acknowledging (default 2s, or a fifth of --lease-ttl if that is less)")
	f.DurationVar(&c.SnapshotEvery, "snapshot-every", c.SnapshotEvery, "time between durable copies of a tenant, which is what a crash may lose; 0 for none")
	f.DurationVar(&c.DrillEvery, "drill-every", c.DrillEvery, "within what time the newest copy of each open tenant is proved restorable again, by restoring it to a file that is removed; 0 for never")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long a handoff, and the whole of a shutdown, waits for running work")
	f.DurationVar(&c.MinTenure, "min-tenure", c.MinTenure, "how long a tenant stays before it is handed off because another replica asks for it; negative for never")
	f.DurationVar(&c.ParkTimeout, "park-timeout", c.ParkTimeout, "how long a request for a tenant that is being handed off waits for it instead of failing")
	f.IntVar(&c.MaxTenants, "max-tenants", 0, "most `N` tenants held at once; 0 for no cap")
	f.IntVar(&c.CloseConcurrency, "close-concurrency", c.CloseConcurrency, "`N` tenants that a shutdown hands off at once")
	f.IntVar(&c.CopyConcurrency, "copy-concurrency", c.CopyConcurrency, "`N` periodic copies that are made at once, over all tenants")
	f.DurationVar(&c.IdleClose, "idle-close", c.IdleClose, "after about how long without use a tenant's connections are closed; it holds its lease, and the next request opens the local ledger again")
	f.DurationVar(&c.IdleHandoff, "idle-handoff", c.IdleHandoff, "how long a tenant must have been without connections before it is handed off to nobody, so that it costs nothing; the next request opens it anew; 0 for never")
	f.DurationVar(&c.BodyTimeout, "body-timeout", c.BodyTimeout, "how long the body of a request may take to arrive")
}

var nameChars = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func defaultName() string {
	host, err := os.Hostname()
	if err != nil || !nameChars.MatchString(host) {
		return "replica"
	}
	return host
}

// copiesPlace is the directory or the bucket of the copies.
func (c *config) copiesPlace() string {
	if c.Copies != "" {
		return c.Copies
	}
	return filepath.Join(c.StateDir, copiesBase)
}

// needCopies is for what uses the copies of several replicas: those of one replica's
// state directory would be the wrong ones.
func (c *config) needCopies() error {
	if c.Copies == "" && !c.embedded() {
		return errors.New("configuration: copies is not set: replicas that share an etcd must share their copies, or each handoff would start from an older state")
	}
	return nil
}

func (c *config) embedded() bool { return len(c.Etcd) == 0 }

// validate names every violation. What the packages below check for themselves
// is left to them.
func (c *config) validate() error {
	var all []error
	demand := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	demand(nameChars.MatchString(c.Name), "name must be 1 to 63 letters, digits, dots, dashes and underscores, and not begin with a sign")
	demand(c.StateDir != "", "state-dir is empty")
	demand(c.LeaseTTL > 0 && coord.ValidateTTL(c.LeaseTTL) == nil, "lease-ttl must be a whole number of milliseconds from %v to %v, not %v", coord.MinTTL, coord.MaxTTL, c.LeaseTTL)
	demand(c.LeaseMargin >= 0 && c.LeaseMargin < c.LeaseTTL, "lease-margin (%v) must not be negative and must be less than lease-ttl (%v)", c.LeaseMargin, c.LeaseTTL)
	demand(c.SnapshotEvery >= 0, "snapshot-every must not be negative")
	demand(c.DrillEvery >= 0, "drill-every must not be negative")
	demand(c.DrainTimeout > 0, "drain-timeout must be positive")
	demand(c.MaxTenants >= 0, "max-tenants must not be negative")
	demand(c.CloseConcurrency > 0, "close-concurrency must be positive")
	demand(c.CopyConcurrency > 0, "copy-concurrency must be positive")
	demand(c.IdleClose >= router.MinIdleClose, "idle-close must be at least %v", router.MinIdleClose)
	demand(c.IdleHandoff >= 0, "idle-handoff must not be negative")
	demand(c.KeepCopies > 0, "keep-copies must be positive")
	demand(c.MinTenure != 0, "min-tenure must not be 0; a negative one means never")
	demand(c.ParkTimeout > 0, "park-timeout must be positive")
	demand(c.BodyTimeout > 0, "body-timeout must be positive")
	if isBucket(c.Copies) {
		if err := blobstore.CheckURL(c.Copies); err != nil {
			all = append(all, fmt.Errorf("copies: %w", err))
		}
	}
	all = append(all, c.accessConfig.check(), c.checkListen(), c.checkAdvertise(), c.checkEtcd())
	return errors.Join(all...)
}

func (c *config) checkEtcd() error {
	var all []error
	if c.embedded() {
		for flag, v := range map[string]string{"etcd-ca": c.EtcdCA, "etcd-cert": c.EtcdCert, "etcd-key": c.EtcdKey, "etcd-user": c.EtcdUser, "etcd-password-file": c.EtcdPasswordFile} {
			if v != "" {
				all = append(all, fmt.Errorf("%s is for an etcd of your own, and etcd is not set", flag))
			}
		}
	}
	if (c.EtcdCert == "") != (c.EtcdKey == "") {
		all = append(all, errors.New("etcd-cert and etcd-key go together"))
	}
	if (c.EtcdUser == "") != (c.EtcdPasswordFile == "") {
		all = append(all, errors.New("etcd-user and etcd-password-file go together"))
	}
	return errors.Join(all...)
}
