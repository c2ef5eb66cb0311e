package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/copystore"
)

// serveSome leaves a state directory with two copies of the demonstration's tenant.
func serveSome(t *testing.T) (copies string) {
	t.Helper()
	cfg := freshConfig(t)
	cfg.SnapshotEvery = 0
	r := startServing(t, cfg)
	for _, key := range []string{"one", "two"} {
		if got := r.status("POST", demoPath+"/events", `{"actor":"a","kind":"k","subject_id":"s","payload":{},"idem_key":"`+key+`"}`); got != 201 {
			t.Fatalf("append: %d", got)
		}
		if got := r.status("POST", demoPath+"/snapshot", ""); got != 200 {
			t.Fatalf("snapshot: %d", got)
		}
	}
	r.cancel()
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cfg.StateDir, copiesBase)
}

// Issue 5, 7: list, verify and restore, while the replica is down and without etcd.
func TestCopiesCommands(t *testing.T) {
	copies := serveSome(t)
	tenant := demoOrganization + "/" + demoTenant
	out, err := run(t, "copies", "list", tenant, "--copies", copies)
	if err != nil || !strings.Contains(out, "started empty") || !strings.Contains(out, "└─ e00000001/snap-000001") {
		t.Errorf("list: %s, %v", out, err)
	}
	out, err = run(t, "copies", "list", tenant, "--state-dir", filepath.Dir(copies), "-o", "json")
	var tree copystore.Tree
	if err != nil || json.Unmarshal([]byte(out), &tree) != nil || len(tree.Epochs) != 1 || len(tree.Epochs[0].Copies) != 2 {
		t.Errorf("list as json: %s, %v", out, err)
	}
	for _, whose := range []string{tenant, demoOrganization} {
		if out, err := run(t, "copies", "verify", whose, "--copies", copies); err != nil || strings.Count(out, " ok\n") != 2 {
			t.Errorf("verify %s: %s, %v", whose, out, err)
		}
	}
	to := filepath.Join(t.TempDir(), "restored.db")
	if out, err := run(t, "copies", "restore", tenant, "--to", to, "--copies", copies, "--epoch", "1", "--seq", "1"); err != nil {
		t.Errorf("restore: %s, %v", out, err)
	}
	if got := countEvents(t, to); got != 1 {
		t.Errorf("copy 1 has %d events", got)
	}
	if _, err := run(t, "copies", "restore", tenant, "--to", to, "--copies", copies); err == nil {
		t.Error("restore replaces a file")
	}
	newest := filepath.Join(copies, filepath.FromSlash(tenant), "e00000001", "snap-000002.db")
	if err := os.Truncate(newest, 4096); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, "copies", "verify", tenant, "--copies", copies); err == nil || !strings.Contains(out, "image has 4096 bytes") {
		t.Errorf("verify of a cut copy: %s, %v", out, err)
	}
	again := filepath.Join(t.TempDir(), "again.db")
	if out, err := run(t, "copies", "restore", tenant, "--to", again, "--copies", copies); err != nil || !strings.Contains(out, "passed over e00000001 seq 2") {
		t.Errorf("restore past a cut copy: %s, %v", out, err)
	}
}

// countEvents opens the file as any program does.
func countEvents(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCopiesCommandsRefuse(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, args := range map[string][]string{
		"no tenant":        {"copies", "list"},
		"bad tenant":       {"copies", "list", "acme/t-1"},
		"bad organization": {"copies", "verify", "ACME"},
		"no file":          {"copies", "restore", demoOrganization + "/" + demoTenant},
		"half a copy":      {"copies", "restore", demoOrganization + "/" + demoTenant, "--to", missing, "--epoch", "1"},
		"bad output":       {"copies", "list", demoOrganization + "/" + demoTenant, "--copies", t.TempDir(), "--output", "xml"},
		"no directory":     {"copies", "list", demoOrganization + "/" + demoTenant, "--copies", missing},
		"no copies":        {"copies", "restore", demoOrganization + "/" + demoTenant, "--to", missing, "--copies", t.TempDir()},
	} {
		if out, err := run(t, args...); err == nil {
			t.Errorf("%s: accepted: %s", name, out)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("something was made")
	}
}
