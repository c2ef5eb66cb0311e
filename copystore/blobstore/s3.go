package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
)

const (
	maxParts      = 10_000
	partsAtOnce   = 2
	abortTimeout  = 30 * time.Second
	onlyIfAbsent  = "*"
	minSweepAge   = time.Hour
	sweepPageSize = 1000
)

// A direct asks S3 for what the portable bucket does not do well enough. Its
// writer holds 16 MiB before it begins, and aborts in the caller's context,
// which leaves the parts behind if that has ended; its delete first looks whether
// there is anything to delete.
type direct struct {
	client   *s3.Client
	bucket   string
	partSize int64
	checksum types.ChecksumAlgorithm // of parts; empty for none
	aborts   sync.WaitGroup
}

// newDirect returns nil for a bucket that is not S3.
func newDirect(bucket *blob.Bucket, name string, partSize int64) *direct {
	d := &direct{bucket: name, partSize: partSize}
	if name == "" || !bucket.As(&d.client) {
		return nil
	}
	if d.client.Options().RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
		d.checksum = types.ChecksumAlgorithmCrc32
	}
	return d
}

// delete succeeds if there is no such object.
func (d *direct) delete(ctx context.Context, key string) error {
	_, err := d.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &d.bucket, Key: &key})
	return err
}

// upload creates the object if the name is free, or leaves nothing.
func (d *direct) upload(ctx context.Context, w write, body io.Reader, size int64) error {
	u := &partUpload{direct: d, write: w, partSize: max(d.partSize, (size+maxParts-1)/maxParts)}
	if err := u.begin(ctx); err != nil {
		return err
	}
	err := u.send(ctx, body, int((size+u.partSize-1)/u.partSize))
	if err == nil {
		err = u.complete(ctx)
	}
	if err != nil {
		// Also after an unclear answer: what has been completed cannot be aborted.
		d.aborts.Go(func() { _ = u.abort(context.WithoutCancel(ctx)) })
	}
	return err
}

// A partUpload is one multipart upload.
type partUpload struct {
	*direct
	write
	id       *string
	partSize int64
	parts    []types.CompletedPart
}

func (u *partUpload) begin(ctx context.Context) error {
	out, err := u.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.bucket, Key: &u.key, ContentType: aws.String(contentType), ChecksumAlgorithm: u.checksum,
		Metadata: u.metadata(),
	})
	if err != nil {
		return err
	}
	u.id = out.UploadId
	return nil
}

// send reads the next part while the one before it is on its way.
func (u *partUpload) send(ctx context.Context, body io.Reader, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u.parts = make([]types.CompletedPart, count)
	buffers := make(chan []byte, partsAtOnce)
	for range partsAtOnce {
		buffers <- nil
	}
	var sending sync.WaitGroup
	for i := range count {
		buffer := <-buffers
		if buffer == nil {
			buffer = make([]byte, u.partSize)
		}
		n, err := io.ReadFull(body, buffer)
		if i == count-1 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil // the last part is as long as it is; the reader knows the size
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			cancel(err)
			break
		}
		sending.Go(func() {
			if err := u.sendPart(ctx, i, buffer[:n]); err != nil {
				cancel(err)
			}
			buffers <- buffer
		})
	}
	sending.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// Makes the reader look whether there is more.
	if n, err := body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("the reader did not end: %w", err)
	}
	return nil
}

func (u *partUpload) sendPart(ctx context.Context, i int, part []byte) error {
	number := aws.Int32(int32(i + 1))
	out, err := u.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.bucket, Key: &u.key, UploadId: u.id, PartNumber: number, ChecksumAlgorithm: u.checksum,
		Body: bytes.NewReader(part),
	})
	if err != nil {
		return err
	}
	u.parts[i] = types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
	return nil
}

func (u *partUpload) complete(ctx context.Context) error {
	_, err := u.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.bucket, Key: &u.key, UploadId: u.id, IfNoneMatch: aws.String(onlyIfAbsent),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	return err
}

// abort frees the parts. There may be none left.
func (u *partUpload) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, abortTimeout)
	defer cancel()
	_, err := u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.bucket, Key: &u.key, UploadId: u.id})
	if isGone(err) {
		return nil
	}
	return err
}

// Sweep aborts multipart uploads below the store's prefix that were begun before
// age ago, an hour at least, by whatever process, and returns how many. One that
// is still going on fails, and leaves nothing; so choose an age that no upload
// reaches. Copies need no sweep to be right: parts cost space only. Where
// uploads in parts are not listed or not used, it does nothing.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (int, error) {
	if s.s3 == nil {
		return 0, nil
	}
	then := time.Now().Add(-max(age, minSweepAge))
	n, err := s.s3.sweep(ctx, s.opts.Prefix, then)
	if code, _ := apiCode(err); code == "NotImplemented" {
		err = nil
	}
	if err != nil {
		return n, fmt.Errorf("sweep: %w", err)
	}
	return n, nil
}

func (d *direct) sweep(ctx context.Context, prefix string, then time.Time) (int, error) {
	swept := 0
	pages := s3.NewListMultipartUploadsPaginator(d.client, &s3.ListMultipartUploadsInput{
		Bucket: &d.bucket, Prefix: &prefix, MaxUploads: aws.Int32(sweepPageSize),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return swept, err
		}
		for _, found := range page.Uploads {
			if found.Initiated == nil || !found.Initiated.Before(then) {
				continue
			}
			u := &partUpload{direct: d, write: write{key: aws.ToString(found.Key)}, id: found.UploadId}
			if err := u.abort(ctx); err != nil {
				return swept, err
			}
			swept++
		}
	}
	return swept, nil
}
