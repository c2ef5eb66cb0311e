package main

import (
	"context"
	"fmt"
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
