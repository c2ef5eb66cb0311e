package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Issue 6 a: every requirement has a row that names tests, once, and every test that
// is named exists.
func TestRequirementsNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := declaredTests(t)
	rows := make(map[string]bool)
	named := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !regexp.MustCompile(`^ ([A-Z]{2}-|trap )\d+ $`).MatchString(cells[1]) {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if rows[id] {
			t.Errorf("%s has two rows", id)
		}
		rows[id] = true
		tests := named.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("%s says nothing: %s", id, line)
		}
		for _, test := range tests {
			if !exists[test[1]] {
				t.Errorf("%s names %s, which does not exist", id, test[1])
			}
		}
	}
	for _, id := range required() {
		if !rows[id] {
			t.Errorf("%s has no row", id)
		}
		delete(rows, id)
	}
	for id := range rows {
		t.Errorf("there is no %s", id)
	}
}

// required are the lines that need a row.
func required() (ids []string) {
	for family, n := range map[string]int{"ID": 7, "LS": 12, "HL": 7, "GU": 6, "LE": 4, "CP": 10, "RO": 18, "RE": 8} {
		for i := 1; i <= n; i++ {
			ids = append(ids, fmt.Sprintf("%s-%d", family, i))
		}
	}
	for _, trap := range []int{
		1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 18, 20, 21, 23, 25, 26, 28, 29, 30, 32, 33, 34, 36, 37, 39, 40,
		42, 43, 44, 45, 47, 48, 49, 50, 51, 53, 54, 55, 56, 57, 60, 61, 65, 66, 67, 68, 69, 71, 72, 74,
	} {
		ids = append(ids, fmt.Sprintf("trap %d", trap))
	}
	return ids
}

// declaredTests returns package.Test for every test and fuzz target of the module,
// behind whatever build constraint.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && regexp.MustCompile(`^(Test|Fuzz)[^a-z]`).MatchString(f.Name.Name) {
				found[pkg+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
