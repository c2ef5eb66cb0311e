package blobstore_test

import (
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fakeS3 is as much of S3 as copies need, and can be made to lie. Its faults
// are set before it is used.
type fakeS3 struct {
	server *httptest.Server

	ignoreConditions  bool // a conditional PUT replaces
	ignoreAtComplete  bool // completing an upload in parts replaces
	checkBeforeWrite  bool // looks whether a name is free, and writes a moment later
	listLate          bool // a listing is that of one write ago
	readStale         bool // a name that was once absent stays so
	readLies          bool // the last byte is another one
	forgetsDeletes    bool // what was deleted is still listed
	dropsMetadata     bool
	beforeReply       func(w http.ResponseWriter, r *http.Request) bool
	intercept         func(w http.ResponseWriter, r *http.Request) bool // true: answered
	conditionalFaults []int                                             // statuses of the next conditional writes, before they do anything

	mu struct {
		sync.Mutex
		objects map[string]string
		meta    map[string]http.Header
		listed  map[string]string
		absent  map[string]bool
		uploads map[string]*fakeUpload
		next    int
		calls   []string
	}
}

type fakeUpload struct {
	key   string
	begun time.Time
	meta  http.Header
	parts map[int]string
}

func newFakeS3(t *testing.T) *fakeS3 {
	f := &fakeS3{}
	f.mu.objects, f.mu.listed = map[string]string{}, map[string]string{}
	f.mu.meta = map[string]http.Header{}
	f.mu.absent, f.mu.uploads = map[string]bool{}, map[string]*fakeUpload{}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "user")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	return f
}

func (f *fakeS3) url() string { return "s3://bucket/copies?endpoint=" + f.server.URL }

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	f.mu.Lock()
	f.mu.calls = append(f.mu.calls, r.Method+" "+key)
	f.mu.Unlock()
	if f.intercept != nil && f.intercept(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPut && query.Has("partNumber"):
		f.putPart(w, query.Get("uploadId"), query.Get("partNumber"), string(body))
	case r.Method == http.MethodPut:
		f.put(w, r, key, string(body), f.ignoreConditions, r.Header, nil)
	case r.Method == http.MethodPost && query.Has("uploads"):
		f.begin(w, r, key)
	case r.Method == http.MethodPost:
		f.complete(w, r, key, query.Get("uploadId"))
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		f.abort(w, query.Get("uploadId"))
	case r.Method == http.MethodDelete:
		f.delete(w, key)
	case query.Has("uploads"):
		f.listUploads(w)
	case query.Has("list-type"):
		f.list(w, query.Get("prefix"), query.Get("continuation-token"))
	default:
		f.get(w, r, key)
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as asked</Message></Error>", code)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v)
}

// put stores body under key; committed is called under the lock if it did.
func (f *fakeS3) put(w http.ResponseWriter, r *http.Request, key, body string, ignore bool, meta http.Header, committed func()) {
	conditional := r.Header.Get("If-None-Match") == "*"
	f.mu.Lock()
	if conditional && len(f.conditionalFaults) > 0 {
		status := f.conditionalFaults[0]
		f.conditionalFaults = f.conditionalFaults[1:]
		f.mu.Unlock()
		fail(w, status, map[int]string{409: "ConditionalRequestConflict", 429: "TooManyRequests", 503: "SlowDown", 500: "InternalError"}[status])
		return
	}
	_, taken := f.mu.objects[key]
	if f.checkBeforeWrite {
		f.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		f.mu.Lock()
	}
	if conditional && taken && !ignore {
		f.mu.Unlock()
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if f.listLate {
		f.mu.listed = cloneMap(f.mu.objects)
	}
	f.mu.objects[key], f.mu.meta[key] = body, meta
	if committed != nil {
		committed()
	}
	f.mu.Unlock()
	if f.beforeReply != nil && f.beforeReply(w, r) {
		return
	}
	etag := fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum([]byte(body))))
	if committed != nil {
		answer(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			ETag    string
		}{ETag: etag})
		return
	}
	w.Header().Set("ETag", etag)
}

func cloneMap(m map[string]string) map[string]string {
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (f *fakeS3) begin(w http.ResponseWriter, r *http.Request, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.next++
	id := strconv.Itoa(f.mu.next)
	f.mu.uploads[id] = &fakeUpload{key: key, begun: time.Now(), meta: r.Header, parts: map[int]string{}}
	answer(w, struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadId string
	}{UploadId: id})
}

func (f *fakeS3) putPart(w http.ResponseWriter, id, number, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.mu.uploads[id]
	if u == nil {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	n, _ := strconv.Atoi(number)
	u.parts[n] = body
	w.Header().Set("ETag", fmt.Sprintf("%q", number))
}

func (f *fakeS3) complete(w http.ResponseWriter, r *http.Request, key, id string) {
	f.mu.Lock()
	u := f.mu.uploads[id]
	f.mu.Unlock()
	if u == nil {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	var whole strings.Builder
	for n := 1; n <= len(u.parts); n++ {
		whole.WriteString(u.parts[n])
	}
	f.put(w, r, key, whole.String(), f.ignoreConditions || f.ignoreAtComplete, u.meta, func() { delete(f.mu.uploads, id) })
}

func (f *fakeS3) abort(w http.ResponseWriter, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.uploads, id)
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeS3) listUploads(w http.ResponseWriter) {
	type upload struct{ Key, UploadId, Initiated string }
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []upload
	for id, u := range f.mu.uploads {
		all = append(all, upload{u.key, id, u.begun.UTC().Format(time.RFC3339)})
	}
	answer(w, struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []upload
	}{Upload: all})
}

func (f *fakeS3) delete(w http.ResponseWriter, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forgetsDeletes {
		f.mu.listed = cloneMap(f.mu.objects)
	}
	delete(f.mu.objects, key)
	w.WriteHeader(http.StatusNoContent)
}

const fakePage = 10

func (f *fakeS3) list(w http.ResponseWriter, prefix, after string) {
	type content struct {
		Key, LastModified string
		Size              int
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	objects := f.mu.objects
	if f.listLate || f.forgetsDeletes && len(f.mu.listed) > 0 {
		objects = f.mu.listed
	}
	var page []content
	for key, body := range objects {
		if strings.HasPrefix(key, prefix) && key > after {
			page = append(page, content{key, "2026-01-01T00:00:00Z", len(body)})
		}
	}
	slices.SortFunc(page, func(a, b content) int { return strings.Compare(a.Key, b.Key) })
	next, truncated := "", len(page) > fakePage
	if truncated {
		page = page[:fakePage]
		next = page[fakePage-1].Key
	}
	answer(w, struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
	}{IsTruncated: truncated, NextContinuationToken: next, Contents: page})
}

func (f *fakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	f.mu.Lock()
	body, found := f.mu.objects[key]
	for name, values := range f.mu.meta[key] {
		if strings.HasPrefix(name, "X-Amz-Meta-") && !f.dropsMetadata {
			w.Header()[name] = values
		}
	}
	if !found {
		f.mu.absent[key] = true
	}
	stale := f.readStale && f.mu.absent[key]
	f.mu.Unlock()
	if !found || stale {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if f.readLies && body != "" {
		body = body[:len(body)-1] + "?"
	}
	w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, body)
	}
}

// count returns how many calls began with what.
func (f *fakeS3) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, call := range f.mu.calls {
		if strings.HasPrefix(call, what) {
			n++
		}
	}
	return n
}

// leftovers returns what is in the bucket, objects and unfinished uploads.
func (f *fakeS3) leftovers() (objects []string, uploads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.mu.objects {
		objects = append(objects, key)
	}
	return objects, len(f.mu.uploads)
}
