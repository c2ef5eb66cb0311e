package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/blobstore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
)

const (
	// bucketTimeout bounds the proof that a bucket is fit, and each sweep.
	bucketTimeout = time.Minute
	// bucketSweepAge is longer than any upload takes.
	bucketSweepAge = 24 * time.Hour
)

// isBucket reports whether --copies names a bucket rather than a directory.
func isBucket(copies string) bool { return strings.Contains(copies, "://") }

// requireDirectory fails if a directory is named that is not there. Opening would make it.
func requireDirectory(place string) error {
	if isBucket(place) {
		return nil
	}
	if info, err := os.Stat(place); err != nil {
		return fmt.Errorf("copies: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("copies: %s is not a directory", place)
	}
	return nil
}

// requireStore fails if place is a directory that no replica has kept copies in, before
// anything is made there.
func requireStore(place string) error {
	if err := requireDirectory(place); err != nil || isBucket(place) {
		return err
	}
	if _, err := os.Stat(filepath.Join(place, copystore.IdentityName)); err != nil {
		return fmt.Errorf("copies: %s is not the store of any replica: %w", place, err)
	}
	return nil
}

// openCopyStore opens the directory or bucket that --copies names.
func openCopyStore(ctx context.Context, copies string, log *zap.Logger) (copystore.Store, func() error, error) {
	if !isBucket(copies) {
		s, err := dirstore.New(copies, dirstore.Options{})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bucketTimeout)
	defer cancel()
	s, err := blobstore.Open(ctx, copies, blobstore.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("copies: %w", err)
	}
	// Parts that a killed replica left cost space and nothing else: a bucket that
	// does not let us look for them serves all the same.
	if _, err := s.Sweep(ctx, bucketSweepAge); err != nil {
		log.Warn("unfinished uploads remain in the bucket", zap.Error(err))
	}
	return s, s.Close, nil
}
