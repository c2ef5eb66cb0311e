package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(nil)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// ID-7, from the command line.
func TestTenantIDCommand(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, bytes.Repeat([]byte{5}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"tenant-id", "--key-file", keyFile, "--issuer", "https://idp.example/acme", "--subject", "user-1"}
	out, err := run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	want := derivedIDs{Tenant: "t-860cead4b9aab8577b5f03fdeff1ead1", Partition: "pc-924a6c80f193149fb4c458af0099d042"}
	if !strings.Contains(out, want.Tenant) || !strings.Contains(out, want.Partition) {
		t.Errorf("printed %q", out)
	}
	out, err = run(t, append(args, "--output", "json")...)
	var got derivedIDs
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got != want {
		t.Errorf("json: %q, %v", out, err)
	}
	for name, bad := range map[string][]string{
		"no flags":       {"tenant-id"},
		"no such file":   {"tenant-id", "--key-file", keyFile + "x", "--issuer", "i", "--subject", "s"},
		"empty subject":  {"tenant-id", "--key-file", keyFile, "--issuer", "i", "--subject", ""},
		"unknown output": append(args, "--output", "xml"),
	} {
		if _, err := run(t, bad...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestVersionCommand(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "replica ") {
		t.Errorf("printed %q, %v", out, err)
	}
}

func TestUnknownCommandIsRefused(t *testing.T) {
	if _, err := run(t, "serve-all"); err == nil {
		t.Error("accepted")
	}
}
