package model

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const document = "../../docs/protocol.md"

// The document tells the protocol in the steps of the model: the same names, in the
// same order, none missing.
func TestDocumentNamesTheSteps(t *testing.T) {
	if got, want := rows(t, "## Step by step"), StepNames(); !slices.Equal(got, want) {
		t.Errorf("%s names the steps\n%q, the model\n%q", document, got, want)
	}
}

func TestDocumentNamesTheSafeguards(t *testing.T) {
	if got, want := rows(t, "## What each safeguard is for"), safeguardNames[:]; !slices.Equal(got, want) {
		t.Errorf("%s names the safeguards\n%q, the model\n%q", document, got, want)
	}
}

// rows returns the first cells of a section's tables.
func rows(t *testing.T, heading string) []string {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", document, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, row[1])
	}
	return names
}
