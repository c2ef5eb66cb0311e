package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runSim(t *testing.T, input string, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand(nil)
	cmd.SetArgs(append([]string{"sim"}, args...))
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

func TestSimCommand(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.html")
	out, err := runSim(t, "", "--seed", "3", "--seeds", "2", "--steps", "100", "--report", report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"histories   2", "faults", "takeovers", "handoffs", "outage"} {
		if !strings.Contains(out, want) {
			t.Errorf("the summary has no %q:\n%s", want, out)
		}
	}
	if page, err := os.ReadFile(report); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("no report: %v", err)
	}
	out, err = runSim(t, "10 stop replica=1 for=20s\n", "--seed", "3", "--steps", "100", "--faults", "-")
	if err != nil || !strings.Contains(out, "faults      1\n") {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := runSim(t, "10 melt\n", "--faults", "-"); err == nil {
		t.Error("a fault that there is not was taken")
	}
}
