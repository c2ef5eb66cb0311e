package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
	"gocloud.dev/blob/memblob"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/blobstore"
	"github.com/leaseholddb/leasehold/copystore/copystoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string) *blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), url, blobstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(ctx context.Context, s copystore.Store, name, body string) error {
	return s.Create(ctx, name, strings.NewReader(body), int64(len(body)))
}

func TestConformanceInMemory(t *testing.T) {
	s, err := blobstore.New(t.Context(), memblob.OpenBucket(nil), blobstore.Options{Prefix: "copies/"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	copystoretest.Test(t, copystoretest.Subject{Store: s})
}

// CP-10 over the protocol of S3, several parts and several pages of a listing
// included, and with each way of sending checksums.
func TestConformanceOverHTTP(t *testing.T) {
	for _, checksum := range []string{"when_supported", "when_required"} {
		t.Run(checksum, func(t *testing.T) {
			f := newFakeS3(t)
			s := open(t, f.url()+"&checksum="+checksum)
			copystoretest.Test(t, copystoretest.Subject{Store: s, Rounds: 3, BigSize: 12 << 20})
			s.Close()
			if objects, uploads := f.leftovers(); len(objects) != 0 || uploads != 0 {
				t.Errorf("left %q and %d unfinished uploads", objects, uploads)
			}
		})
	}
}

// Issue 5 a: stores that lie are refused when they are opened.
func TestProbeRefusesStoresThatLie(t *testing.T) {
	lies := map[string]func(f *fakeS3){
		"replaced an object":              func(f *fakeS3) { f.ignoreConditions = true },
		"completing an upload":            func(f *fakeS3) { f.ignoreAtComplete = true },
		"conditional writes of one name":  func(f *fakeS3) { f.checkBeforeWrite = true },
		"not listed":                      func(f *fakeS3) { f.listLate = true },
		"cannot be read":                  func(f *fakeS3) { f.readStale = true },
		"something else than was written": func(f *fakeS3) { f.readLies = true },
		"listed after it was deleted":     func(f *fakeS3) { f.forgetsDeletes = true },
	}
	for seen, lie := range lies {
		t.Run(seen, func(t *testing.T) {
			f := newFakeS3(t)
			lie(f)
			s, err := blobstore.Open(t.Context(), f.url(), blobstore.Options{})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, blobstore.ErrUnfit) || !strings.Contains(fmt.Sprint(err), seen) {
				t.Errorf("Open gives %v", err)
			}
			if objects, uploads := f.leftovers(); len(objects) != 0 || uploads != 0 {
				t.Errorf("left %q and %d unfinished uploads", objects, uploads)
			}
		})
	}
}

// Traps 29 and 30, and issue 5 f: what S3 asks to have repeated is.
func TestConditionalWriteIsRepeated(t *testing.T) {
	for _, status := range []int{409, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f := newFakeS3(t)
			s := open(t, f.url())
			f.conditionalFaults = []int{status, status}
			before := f.count("PUT copies/a")
			if err := create(t.Context(), s, "a", "body"); err != nil {
				t.Fatalf("create gives %v", err)
			}
			if n := f.count("PUT copies/a") - before; n != 3 {
				t.Errorf("%d attempts", n)
			}
			if err := create(t.Context(), s, "a", "body"); !errors.Is(err, copystore.ErrExists) {
				t.Errorf("a second create gives %v", err)
			}
		})
	}
}

// Trap 28: the repetition of a write whose answer was lost finds its own object
// and recognises it. Without metadata, the caller has to do that.
func TestLostAnswerIsRecognised(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		drop bool
		want error
	}{
		"small":            {4, false, nil},
		"in parts":         {blobstore.DefaultPartSize + 1, false, nil},
		"without metadata": {4, true, copystore.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeS3(t)
			f.dropsMetadata = c.drop
			s := open(t, f.url())
			var lost atomic.Bool
			f.beforeReply = func(http.ResponseWriter, *http.Request) bool {
				if !lost.CompareAndSwap(false, true) {
					return false
				}
				panic(http.ErrAbortHandler)
			}
			body := strings.Repeat("x", c.size)
			if err := create(t.Context(), s, "a", body); !errors.Is(err, c.want) {
				t.Fatalf("create gives %v", err)
			}
			if err := create(t.Context(), s, "a", body); !errors.Is(err, copystore.ErrExists) {
				t.Errorf("the same bytes once more give %v", err)
			}
			r, err := s.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got, err := io.ReadAll(r); string(got) != body {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		})
	}
}

// Traps 26 and 33: an upload in parts that fails, for whatever reason, is aborted,
// also after its context has ended.
func TestFailedUploadInPartsIsAborted(t *testing.T) {
	const size = 3 * blobstore.DefaultPartSize
	broken := errors.New("broken")
	zeros := func(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }
	cases := map[string]func(ctx context.Context, cancel func()) (io.Reader, error){
		"failing reader": func(context.Context, func()) (io.Reader, error) {
			return io.MultiReader(zeros(size-1), iotest.ErrReader(broken)), broken
		},
		"cancelled": func(_ context.Context, cancel func()) (io.Reader, error) {
			hook := readerFunc(func([]byte) (int, error) { cancel(); return 0, nil })
			return io.MultiReader(zeros(size-1), hook, zeros(1)), context.Canceled
		},
		"name taken": func(context.Context, func()) (io.Reader, error) { return zeros(size), copystore.ErrExists },
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeS3(t)
			s := open(t, f.url())
			if err := create(t.Context(), s, "taken", "first"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			object := "new"
			r, want := c(ctx, cancel)
			if want == copystore.ErrExists {
				object = "taken"
			}
			if err := s.Create(ctx, object, r, size); !errors.Is(err, want) {
				t.Errorf("create gives %v, want %v", err, want)
			}
			s.Close() // waits for the abort
			if objects, uploads := f.leftovers(); len(objects) != 1 || uploads != 0 {
				t.Errorf("left %q and %d unfinished uploads", objects, uploads)
			}
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Issue 5 d: what a killed process left is swept, what is new is not.
func TestSweepAbortsOldUploads(t *testing.T) {
	f := newFakeS3(t)
	s := open(t, f.url())
	f.mu.Lock()
	f.mu.uploads["old"] = &fakeUpload{key: "copies/x", begun: time.Now().Add(-3 * time.Hour)}
	f.mu.uploads["new"] = &fakeUpload{key: "copies/x", begun: time.Now()}
	f.mu.Unlock()
	if n, err := s.Sweep(t.Context(), 2*time.Hour); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if n, err := s.Sweep(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("swept %d younger than an hour, %v", n, err)
	}
}

// A bucket that is gone is not a tenant without copies.
func TestMissingBucketIsNotAnAbsentObject(t *testing.T) {
	f := newFakeS3(t)
	s := open(t, f.url())
	f.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, http.StatusNotFound, "NoSuchBucket")
		return true
	}
	if _, err := s.Open(t.Context(), "a"); err == nil || errors.Is(err, copystore.ErrNotExist) {
		t.Errorf("open gives %v", err)
	}
	for _, err := range s.List(t.Context(), "") {
		if err == nil {
			t.Error("the bucket lists")
		}
	}
}

// Issue 5 f: a store that answers nothing is left when the context ends, in each
// operation, and nothing of the call remains.
func TestHangingStoreIsLeft(t *testing.T) {
	f := newFakeS3(t)
	s := open(t, f.url())
	if err := create(t.Context(), s, "there", "body"); err != nil {
		t.Fatal(err)
	}
	release, arrived := make(chan struct{}), make(chan struct{}, 100)
	f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}
	defer close(release)
	calls := map[string]func(ctx context.Context) error{
		"create":       func(ctx context.Context) error { return create(ctx, s, "a", "b") },
		"create large": func(ctx context.Context) error { return s.Create(ctx, "a", zeroReader{}, 1<<30) },
		"open":         func(ctx context.Context) error { _, err := s.Open(ctx, "there"); return err },
		"delete":       func(ctx context.Context) error { return s.Delete(ctx, "there") },
		"list": func(ctx context.Context) error {
			for _, err := range s.List(ctx, "") {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-arrived; cancel() }()
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("gives %v", err)
			}
		})
	}
}

// No more calls go on at once than the options say, and those that wait say so.
func TestConcurrencyIsBounded(t *testing.T) {
	f := newFakeS3(t)
	s, err := blobstore.Open(t.Context(), f.url()+"&uploads=2&downloads=2", blobstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var now, most atomic.Int32
	enter := make(chan struct{}, 100)
	leave := make(chan struct{})
	f.intercept = func(http.ResponseWriter, *http.Request) bool {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		enter <- struct{}{}
		<-leave
		now.Add(-1)
		return false
	}
	var calls sync.WaitGroup
	for i := range 6 {
		calls.Go(func() {
			if err := create(t.Context(), s, fmt.Sprintf("o%d", i), "body"); err != nil {
				t.Error(err)
			}
		})
	}
	<-enter
	<-enter
	for range 6 {
		leave <- struct{}{}
	}
	calls.Wait()
	if most.Load() > 2 {
		t.Errorf("%d uploads at once", most.Load())
	}
}

func TestURLsAreChecked(t *testing.T) {
	bad := []string{
		"", "dir", "http://bucket", "s3://", "s3:bucket", "s3://user:secret@bucket", "s3://bucket/Prefix", "s3://bucket/a/../b", "s3://bucket#x",
		"s3://bucket?endpoint=minio:9000", "s3://bucket?endpoint=http://a:b@minio", "s3://bucket?region=a&region=b", "s3://bucket?path_style=maybe",
		"s3://bucket?checksum=never", "s3://bucket?uploads=many", "s3://bucket?uploads=-1", "s3://bucket?unknown=1",
	}
	for _, url := range bad {
		if err := blobstore.CheckURL(url); !errors.Is(err, coord.CodeOptionsInvalid) {
			t.Errorf("%q gives %v", url, err)
		}
		if err := blobstore.CheckURL(url); strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%q is repeated: %v", url, err)
		}
	}
	for _, url := range []string{"s3://bucket", "s3://bucket/", "s3://bucket/a/b?region=eu-central-1&path_style=false&checksum=when_required&uploads=3&downloads=4"} {
		if err := blobstore.CheckURL(url); err != nil {
			t.Errorf("%q gives %v", url, err)
		}
	}
	if _, err := blobstore.New(t.Context(), memblob.OpenBucket(nil), blobstore.Options{Prefix: "x", MaxUploads: -1, PartSize: 1}); !errors.Is(err, coord.CodeOptionsInvalid) {
		t.Errorf("bad options give %v", err)
	}
}

// Trap 30: a signature that the store finds too old or too new is made again by the
// store's own clock.
func TestClockSkewIsRepaired(t *testing.T) {
	f := newFakeS3(t)
	s := open(t, f.url())
	var refused atomic.Int32
	f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		store := time.Now().Add(time.Hour)
		w.Header().Set("Date", store.UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err == nil && store.Sub(signed) < 15*time.Minute {
			return false
		}
		refused.Add(1)
		fail(w, http.StatusForbidden, "RequestTimeTooSkewed")
		return true
	}
	if err := create(t.Context(), s, "a", "body"); err != nil || refused.Load() == 0 {
		t.Errorf("create gives %v after %d refusals", err, refused.Load())
	}
}
