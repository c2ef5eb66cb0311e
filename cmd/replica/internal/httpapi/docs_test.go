package httpapi

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	alertsFile     = "../../../../docs/alerts.yaml"
	operationsFile = "../../../../docs/operations.md"
)

// families are the names of this server's own metrics.
func families(t *testing.T) map[string]bool {
	t.Helper()
	m := newMetrics("test")
	names := make(map[string]bool)
	gathered, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gathered {
		if strings.HasPrefix(f.GetName(), "leasehold_") {
			names[f.GetName()] = true
		}
	}
	names["leasehold_http_requests_total"] = true // no request yet
	source, err := os.ReadFile("metrics.go")      // what is counted when somebody asks
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`NewDesc\("(leasehold_\w+)"`).FindAllStringSubmatch(string(source), -1) {
		names[name[1]] = true
	}
	names["leasehold_ready"], names["leasehold_tls_certificate_end_timestamp_seconds"] = true, true
	names["leasehold_access_files_stale"] = true
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Issue 6, 8: the page for operators speaks of every metric, every alert and every
// code, with its status, and of none that is not there; so do the alerts.
func TestOperationsPageIsComplete(t *testing.T) {
	page, names := read(t, operationsFile), families(t)
	for name := range names {
		if !strings.Contains(page, "`"+name) {
			t.Errorf("the metric %s is not explained", name)
		}
	}
	metric := regexp.MustCompile(`leasehold_[a-z_]+`)
	exists := func(name string) bool {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		return names[name] || names[base]
	}
	for _, name := range metric.FindAllString(page, -1) {
		if !exists(name) {
			t.Errorf("the page speaks of %s, which does not exist", name)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &rules); err != nil || len(rules.Groups) == 0 {
		t.Fatalf("%s: %v", alertsFile, err)
	}
	alerts := make(map[string]bool)
	for _, rule := range rules.Groups[0].Rules {
		alerts[rule.Alert] = true
		if !strings.Contains(page, "| `"+rule.Alert+"` |") {
			t.Errorf("the alert %s has no row", rule.Alert)
		}
		used := metric.FindAllString(rule.Expr, -1)
		for _, name := range used {
			if !exists(name) {
				t.Errorf("the alert %s is about %s, which does not exist", rule.Alert, name)
			}
		}
		if len(used) == 0 {
			t.Errorf("the alert %s is about nothing: %q", rule.Alert, rule.Expr)
		}
	}
	for _, name := range regexp.MustCompile("`(Leasehold[A-Z][A-Za-z]+)`").FindAllStringSubmatch(page, -1) {
		if !alerts[name[1]] {
			t.Errorf("the page speaks of the alert %s, which does not exist", name[1])
		}
	}
}

// Who reads the event stream finds the name of every event in the README.
func TestReadmeNamesEveryEvent(t *testing.T) {
	readme := read(t, "../../../../README.md")
	names := regexp.MustCompile(`EventKind = "(\w+)"`).FindAllStringSubmatch(read(t, "../../../../router/events.go"), -1)
	if len(names) < 10 {
		t.Fatalf("found the events %v", names)
	}
	for _, name := range names {
		if !strings.Contains(readme, "`"+name[1]+"`") {
			t.Errorf("the event %s is not named", name[1])
		}
	}
}

func TestOperationsPageHasEveryCode(t *testing.T) {
	_, table, _ := strings.Cut(read(t, operationsFile), "## Error codes")
	rows := make(map[string]string) // the row by code
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, code := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[code[1]] = cells[2]
		}
	}
	for code, status := range wantStatus {
		if got, ok := rows[string(code)]; !ok || !strings.Contains(got, strconv.Itoa(status)) {
			t.Errorf("%s has the status %q in its row (%v), want %d", code, got, ok, status)
		}
		delete(rows, string(code))
	}
	for code := range rows {
		t.Errorf("the page has a row for %s, which does not exist", code)
	}
}
