package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const (
	configFlag = "config"
	envPrefix  = "LEASEHOLD_"
)

// A source is where a setting may come from besides its flag.
type source struct {
	name   string                             // for messages
	lookup func(flag string) (string, bool)   // the setting of a flag
	spell  func(flag string) (spelled string) // how the source names it
}

// load completes c, whose flags have been parsed: what no flag set comes from the
// environment, else from the file, else it keeps its default. Everything that is
// wrong is reported together.
func (c *config) load(flags *pflag.FlagSet, file string, environ []string) error {
	env, envErr := readEnvironment(flags, environ)
	if file == "" {
		file, _ = env.lookup(configFlag)
	}
	settings, fileErr := readFile(flags, file)
	problems := []error{envErr, fileErr}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == configFlag || f.Name == "help" {
			return
		}
		problems = append(problems, setFrom(f, env, settings))
	})
	if err := errors.Join(problems...); err != nil {
		// Relations between settings mean little while some are unreadable.
		return fmt.Errorf("configuration: %w", err)
	}
	if err := c.validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// setFrom takes the flag's value from the first source that has one.
func setFrom(f *pflag.Flag, sources ...source) error {
	for _, s := range sources {
		text, ok := s.lookup(f.Name)
		if !ok {
			continue
		}
		if err := f.Value.Set(text); err != nil {
			return fmt.Errorf("%s %s: %w", s.name, s.spell(f.Name), err)
		}
		return nil
	}
	return nil
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// serviceLink matches the variables that Kubernetes sets for a service which is
// called leasehold; they are no settings of ours.
var serviceLink = regexp.MustCompile(`^LEASEHOLD_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)$`)

// readEnvironment refuses variables with our prefix that set nothing.
func readEnvironment(flags *pflag.FlagSet, environ []string) (source, error) {
	values := make(map[string]string)
	var unknown []string
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || serviceLink.MatchString(name) {
			continue
		}
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-"))
		if flags.Lookup(flag) == nil || flag == "help" || envName(flag) != name {
			unknown = append(unknown, name)
		} else if text != "" {
			values[flag] = text
		}
	}
	env := source{name: "variable", spell: envName, lookup: func(flag string) (string, bool) {
		text, ok := values[flag]
		return text, ok
	}}
	return env, unknownNames("variable", unknown)
}

// readFile reads settings in YAML: a map from flag names to scalars, or to lists
// for flags that take lists.
func readFile(flags *pflag.FlagSet, path string) (source, error) {
	values := make(map[string]string)
	s := source{name: "file " + path + ":", spell: func(flag string) string { return flag }, lookup: func(flag string) (string, bool) {
		text, ok := values[flag]
		return text, ok
	}}
	if path == "" {
		return s, nil
	}
	nodes, err := parseYAML(path)
	if err != nil {
		return s, err
	}
	var unknown []string
	var problems []error
	for name, node := range nodes {
		if flags.Lookup(name) == nil || name == configFlag || name == "help" {
			unknown = append(unknown, name)
			continue
		}
		text, err := scalar(node)
		if err != nil {
			problems = append(problems, fmt.Errorf("file %s: %s: %w", path, name, err))
			continue
		}
		values[name] = text
	}
	return s, errors.Join(append(problems, unknownNames("file "+path+": setting", unknown))...)
}

func parseYAML(path string) (map[string]yaml.Node, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	defer f.Close()
	var nodes map[string]yaml.Node
	d := yaml.NewDecoder(f)
	if err := d.Decode(&nodes); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("file %s: only one YAML document is read", path)
	}
	return nodes, nil
}

func scalar(node yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", errors.New("has no value")
		}
		return node.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, 0, len(node.Content))
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("must be a list of plain values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	default:
		return "", errors.New("must be a plain value")
	}
}

func unknownNames(what string, names []string) error {
	var problems []error
	slices.Sort(names)
	for _, name := range names {
		problems = append(problems, fmt.Errorf("%s %s is not known", what, name))
	}
	return errors.Join(problems...)
}
