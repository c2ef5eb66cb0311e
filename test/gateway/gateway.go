// Package gateway runs a real S3 server for tests: versitygw, which keeps buckets as
// directories.
package gateway

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// Module and Version say which server this is.
	Module  = "github.com/versity/versitygw/cmd/versitygw"
	Version = "v1.8.0"

	accessKey, secretKey = "leasehold", "known-to-everybody-on-loopback"
)

// Install puts the server into ./bin unless this version of it is there, and returns its
// path.
func Install(ctx context.Context) (string, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(bin, "versitygw-"+Version)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	cmd := exec.CommandContext(ctx, "go", "install", Module+"@"+Version)
	cmd.Env = append(os.Environ(), "GOBIN="+bin)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("install %s: %w", Module, err)
	}
	return binary, os.Rename(filepath.Join(bin, "versitygw"), binary)
}

// Args are the server's arguments: it serves the directories in data as buckets, and
// answers GET /health.
func Args(address, data string) []string {
	return []string{"--port", address, "--health", "/health", "--quiet", "posix", data}
}

// ServerEnv is the environment of the server.
func ServerEnv() []string {
	return append(ClientEnv(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
}

// ClientEnv is the environment of a client of the server; it holds no configuration of the
// user's.
func ClientEnv() []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_SESSION_TOKEN=",
		"AWS_REGION=us-east-1", "AWS_PROFILE=", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
}
