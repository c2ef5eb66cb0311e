package test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/leaseholddb/leasehold"

// mayImport lists, for each package of the product, the packages of ours that it
// may know: arrows point down only. Tests and everything below test/ see all.
var mayImport = map[string][]string{
	"coord":                        {},
	"coord/coordtest":              {"coord"},
	"coord/memlease":               {"coord"},
	"coord/sqlitelease":            {"coord", "fencing/sqliteuri"},
	"etcdlease":                    {"coord"},
	"etcdlease/embedetcd":          {"coord"},
	"fencing":                      {"coord", "fencing/sqliteuri", "internal/safeguards"},
	"fencing/sqliteuri":            {"coord"},
	"ledger":                       {"coord", "fencing/sqliteuri"},
	"copystore":                    {"coord", "internal/safeguards"},
	"copystore/copystoretest":      {"coord", "copystore"},
	"copystore/dirstore":           {"coord", "copystore"},
	"copystore/memstore":           {"coord", "copystore"},
	"copystore/blobstore":          {"coord", "copystore"},
	"router":                       {"coord", "fencing", "ledger", "copystore", "internal/safeguards"},
	"internal/safeguards":          {},
	"sim":                          {"coord", "copystore", "ledger", "router", "internal/safeguards", "sim/history"},
	"sim/history":                  {"coord"},
	"sim/model":                    {},
	"cmd/replica/internal/access":  {"coord"},
	"cmd/replica/internal/httpapi": {"coord", "fencing", "ledger", "copystore", "router", "cmd/replica/internal/access"},
	"cmd/replica": {
		"sim", "coord", "router", "ledger", "copystore", "copystore/dirstore", "copystore/blobstore", "etcdlease", "etcdlease/embedetcd", "cmd/replica/internal/access", "cmd/replica/internal/httpapi",
	},
}

// knows lists the only packages that may import a foreign one.
var knows = map[string][]string{
	"go.etcd.io/":                 {"etcdlease", "etcdlease/embedetcd"},
	"google.golang.org/grpc":      {"etcdlease"},
	"github.com/mattn/go-sqlite3": {"fencing", "ledger", "coord/sqlitelease"},
	"github.com/spf13/":           {"cmd/replica"},
	"gocloud.dev":                 {"copystore/blobstore"},
	"github.com/aws/":             {"copystore/blobstore"},
	"github.com/prometheus/":      {"cmd/replica/internal/httpapi"},
	"github.com/anishathalye/":    {"sim/history"},
	"testing":                     {"coord/coordtest", "copystore/copystoretest", "sim"},
}

// The tree explains the system: who may know whom is written down here.
func TestArrowsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg := strings.TrimPrefix(path, module+"/")
		if pkg == "test" || strings.HasPrefix(pkg, "test/") {
			continue
		}
		allowed, known := mayImport[pkg]
		if !known {
			t.Errorf("package %s has no place in the tree yet: say in mayImport what it may know", pkg)
		}
		for _, imported := range strings.Fields(imports) {
			if ours, isOurs := strings.CutPrefix(imported, module+"/"); isOurs && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s", pkg, ours)
			}
			for foreign, who := range knows {
				if strings.HasPrefix(imported, foreign) && !slices.Contains(who, pkg) {
					t.Errorf("%s imports %s, which only %v may", pkg, imported, who)
				}
			}
		}
	}
}
