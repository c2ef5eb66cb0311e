package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
)

// probeBase is what the disk is tried with.
const probeBase = ".probe"

// probes are what a replica cannot do without for longer than a lease lasts. The
// store of copies is not among them: without it tenants are served all the same,
// and a fleet that turned away every request would be no help.
func (r *replica) probes() []httpapi.Probe {
	return []httpapi.Probe{
		{Name: "etcd does not answer", Check: func(ctx context.Context) error {
			_, err := r.leases.List(ctx, "", "", 1)
			return err
		}},
		{Name: "the state directory cannot be written", Check: func(context.Context) error { return probeDisk(r.cfg.StateDir) }},
	}
}

// probeDisk takes a byte to the disk under dir, and away again.
func probeDisk(dir string) error {
	path := filepath.Join(dir, probeBase)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{1})
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(path))
}
