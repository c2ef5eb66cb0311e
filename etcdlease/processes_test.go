package etcdlease_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/etcdlease"
)

const racerEnv = "LEASEHOLD_TEST_RACER"

// race is a process of its own; see coordtest.RaceProcesses. where is an endpoint
// and a prefix.
func race(where string) int {
	endpoint, prefix, _ := strings.Cut(where, " ")
	s, err := etcdlease.Open(context.Background(), etcdlease.Config{
		Endpoints: []string{endpoint}, Options: etcdlease.Options{Prefix: prefix, RequestTimeout: time.Minute},
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer s.Close()
	return coordtest.Racer(s)
}

// LS-11 with real processes.
func TestSixteenProcesses(t *testing.T) {
	s := open(t, nil)
	winner := coordtest.RaceProcesses(t, 16, fmt.Sprintf("%s=%s %s", racerEnv, endpoints[0], prefix(t)))
	if r := read(t, s, key(t, 1)); r.Owner != winner || r.Epoch != 1 || !r.Held {
		t.Fatalf("%s won, the record is %+v", winner, r)
	}
}
