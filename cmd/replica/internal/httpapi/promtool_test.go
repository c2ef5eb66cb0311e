//go:build promtool

package httpapi_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Issue 6, 7: what Prometheus' own tool says about the metrics and the alerts.
func TestPromtool(t *testing.T) {
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(aBusyReplica(t))
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("check metrics: %v\n%s", err, out)
	}
	out, err := exec.Command("promtool", "check", "rules", "../../../../docs/alerts.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("check rules: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}
