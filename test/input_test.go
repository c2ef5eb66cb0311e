package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const goodTenant = "t-860cead4b9aab8577b5f03fdeff1ead1"

// A badRequest is sent as it stands, without any client tidying its path.
type badRequest struct {
	name         string
	method, path string
	body         string
	status       int
	code         string
}

func badRequests() []badRequest {
	tenant := "/v1/organizations/acme/tenants/" + goodTenant
	var all []badRequest
	// Trap 61: one rule for ids at every door.
	for _, id := range []string{
		"%2e%2e", "..%2f..%2fetc", "a%3Fmode=memory", "a%23b", "%00", "a%00b", "%ff", "a%0Ab", "A", "%C3%A9", strings.Repeat("a", 300), "t-", "T" + goodTenant[1:],
	} {
		all = append(all,
			badRequest{"tenant " + id, "POST", "/v1/organizations/acme/tenants/" + id + "/events", `{}`, 400, "ID_INVALID"},
			badRequest{"read of tenant " + id, "GET", "/v1/organizations/acme/tenants/" + id, "", 400, "ID_INVALID"},
			badRequest{"deletion of tenant " + id, "DELETE", "/v1/organizations/acme/tenants/" + id, "", 400, "ID_INVALID"},
		)
		if id != "t-" { // which is an organization's good name
			all = append(all, badRequest{"organization " + id, "POST", "/v1/organizations/" + id + "/tenants/" + goodTenant + "/open", "", 400, "ID_INVALID"})
		}
	}
	event := func(change string) string {
		return `{"actor":"a","kind":"k","subject_id":"s","payload":{}` + change + `}`
	}
	return append(all,
		badRequest{"broken JSON", "POST", tenant + "/events", `{"actor":`, 400, "REQUEST_INVALID"},
		badRequest{"no JSON", "POST", tenant + "/events", `hello`, 400, "REQUEST_INVALID"},
		badRequest{"empty body", "POST", tenant + "/events", ``, 400, "REQUEST_INVALID"},
		badRequest{"unknown field", "POST", tenant + "/events", event(`,"colour":"red"`), 400, "REQUEST_INVALID"},
		badRequest{"trailing data", "POST", tenant + "/events", event("") + event(""), 400, "REQUEST_INVALID"},
		badRequest{"payload nested too deep", "POST", tenant + "/events", `{"actor":"a","kind":"k","payload":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`, 400, "EVENT_INVALID"},
		badRequest{"half a character", "POST", tenant + "/events", event(`,"idem_key":"\ud800"`), 400, "REQUEST_INVALID"},
		badRequest{"no kind", "POST", tenant + "/events", `{"actor":"a","payload":{}}`, 400, "EVENT_INVALID"},
		badRequest{"body over the limit", "POST", tenant + "/events", event(`,"idem_key":"` + strings.Repeat("x", 2<<20) + `"`), 413, "BODY_TOO_LARGE"},
		badRequest{"query that is no JSON", "POST", tenant + "/query", `SELECT 1`, 400, "REQUEST_INVALID"},
		badRequest{"exec of nothing", "POST", tenant + "/exec", `{"statements":[]}`, 400, "REQUEST_INVALID"},
		badRequest{"limit that is no number", "GET", tenant + "/events?limit=many", "", 400, "REQUEST_INVALID"},
		badRequest{"limit below zero", "GET", tenant + "/events?limit=-1", "", 400, "REQUEST_INVALID"},
		badRequest{"read of an unknown tenant", "GET", tenant, "", 404, "TENANT_UNKNOWN"},
		badRequest{"events of an unknown tenant", "GET", tenant + "/events", "", 404, "TENANT_UNKNOWN"},
		badRequest{"query of an unknown tenant", "POST", tenant + "/query", `{"sql":"SELECT 1"}`, 404, "TENANT_UNKNOWN"},
		badRequest{"deletion of an unknown tenant", "DELETE", tenant, "", 404, "TENANT_UNKNOWN"},
		badRequest{"unknown path", "GET", "/v2", "", 404, "NOT_FOUND"},
		badRequest{"unknown action", "POST", tenant + "/explode", "", 404, "NOT_FOUND"},
		badRequest{"unknown method", "PUT", tenant + "/events", "", 405, "METHOD_NOT_ALLOWED"},
	)
}

// ID-6, RE-7: every refusal is a problem document with a code, and nothing was
// created in etcd, on disk or in the copies.
func TestBadInputCreatesNothing(t *testing.T) {
	f := newFleet(t)
	a := f.start("a")
	before, copies := f.etcdKeys(), filesBelow(t, f.copies)
	for _, bad := range badRequests() {
		got, err := a.raw(bad.method, bad.path, bad.body)
		if err != nil {
			t.Errorf("%s: no answer: %v", bad.name, err)
			continue
		}
		if got.status != bad.status || got.code() != bad.code {
			t.Errorf("%s: got %s, want %d %s", bad.name, got, bad.status, bad.code)
		}
		if media := got.header.Get("Content-Type"); media != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", bad.name, media)
		}
		if got.header.Get("Leasehold-Replica") == "" {
			t.Errorf("%s: no Leasehold-Replica", bad.name)
		}
	}
	if after := f.etcdKeys(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("etcd holds %v, want %v as before", after, before)
	}
	if files := filesBelow(t, filepath.Join(a.dir, "orgs")); len(files) > 0 {
		t.Errorf("the state directory holds %v", files)
	}
	if files := filesBelow(t, f.copies); len(files) != len(copies) {
		t.Errorf("the copies are %v, want %v as before", files, copies)
	}
}

// GU-5 and SQL errors, on a tenant that exists: refused or failed with a code, and
// the ledger is as it was.
func TestBadSQL(t *testing.T) {
	f := newFleet(t)
	a := f.start("a")
	tenant := "/v1/organizations/acme/tenants/" + goodTenant
	a.must(201, "POST", tenant+"/events", note("first"))
	files := filesBelow(t, a.dir)
	outside := filepath.Join(t.TempDir(), "outside.db")
	for sql, want := range map[string]string{
		"SELECT hex(zeroblob(200000000))":       "422 SQL_FAILED",
		"SELEC 1":                               "422 SQL_FAILED",
		"SELECT * FROM nowhere":                 "422 SQL_FAILED",
		"UPDATE events SET kind='x'":            "422 SQL_FAILED",
		"DELETE FROM events":                    "422 SQL_FAILED",
		"ATTACH '" + outside + "' AS o":         "403 SQL_REFUSED",
		"/*c*/ ; ATTACH '" + outside + "' AS o": "403 SQL_REFUSED",
		"VACUUM INTO '" + outside + "'":         "403 SQL_REFUSED",
		"PRAGMA journal_mode=DELETE":            "403 SQL_REFUSED",
		"PRAGMA writable_schema=ON":             "403 SQL_REFUSED",
		"SELECT load_extension('x')":            "403 SQL_REFUSED",
	} {
		body := map[string]any{"statements": []map[string]any{{"sql": sql}}}
		got, err := a.do(t.Context(), "POST", tenant+"/exec", body)
		if err != nil {
			t.Fatal(err)
		}
		if have := fmt.Sprintf("%d %s", got.status, got.code()); have != want {
			t.Errorf("exec %q: got %s, want %s", sql, got, want)
		}
	}
	got := a.must(422, "POST", tenant+"/query", map[string]any{"sql": "INSERT INTO events(actor) VALUES ('x')"})
	if got.code() != "SQL_FAILED" {
		t.Errorf("a query that writes: %s", got)
	}
	if n := len(a.idemKeys(mustKey(t, "acme/"+goodTenant))); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	for _, name := range filesBelow(t, a.dir) {
		if !strings.Contains(strings.Join(files, " "), strings.TrimSuffix(strings.TrimSuffix(name, "-wal"), "-shm")) {
			t.Errorf("a new file: %s", name)
		}
	}
	if len(filesBelow(t, filepath.Dir(outside))) > 0 {
		t.Error("a file was written outside")
	}
}

// RE-7: a body that does not arrive is 408, and holds nothing meanwhile.
func TestSlowBody(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--body-timeout", "1s")
	before := f.etcdKeys()
	conn := halfARequest(t, a, mustKey(t, "acme/"+goodTenant))
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(got, []byte(" 408 ")) || !bytes.Contains(got, []byte("BODY_TIMEOUT")) {
		t.Errorf("got %q, %v, want 408 BODY_TIMEOUT", got, err)
	}
	if after := f.etcdKeys(); len(after) != len(before) {
		t.Errorf("a request that never arrived left %v", after)
	}
}

// raw sends the path byte for byte.
func (r *replica) raw(method, path, body string) (reply, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	go fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	var raw bytes.Buffer
	if _, err := io.Copy(&raw, conn); err != nil && raw.Len() == 0 {
		return reply{}, err
	}
	head, text, _ := bytes.Cut(raw.Bytes(), []byte("\r\n\r\n"))
	got := reply{header: make(http.Header)}
	for i, line := range strings.Split(string(head), "\r\n") {
		if i == 0 {
			fmt.Sscanf(line, "HTTP/1.1 %d", &got.status)
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		got.header.Add(name, value)
	}
	// The body may be chunked; the document is what stands between the braces.
	if from, to := bytes.IndexByte(text, '{'), bytes.LastIndexByte(text, '}'); from >= 0 && to > from {
		got.body = text[from : to+1]
	}
	if !json.Valid(got.body) {
		return got, fmt.Errorf("no JSON in %q", raw.Bytes())
	}
	return got, nil
}

func (f *fleet) etcdKeys() []string {
	f.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: f.etcd.Endpoints()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	got, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		f.t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err)
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
