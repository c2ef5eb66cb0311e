//go:build linux

package main

import (
	"errors"
	"testing"

	"github.com/leaseholddb/leasehold/sim/history"
)

// Only a refusal that is documented to change nothing counts as one; every doubt is an
// unknown outcome.
func TestOutcome(t *testing.T) {
	tests := []struct {
		name string
		a    answer
		err  error
		want history.Outcome
	}{
		{"Acknowledged", answer{status: 201, epoch: 3}, nil, history.OK},
		{"NoAnswer", answer{}, errors.New("EOF"), history.Unknown},
		{"Fenced", answer{status: 503, body: []byte(`{"code":"FENCED"}`)}, nil, history.Failed},
		{"Unknown", answer{status: 503, body: []byte(`{"code":"OUTCOME_UNKNOWN"}`)}, nil, history.Unknown},
		{"NewCode", answer{status: 500, body: []byte(`{"code":"SOMETHING_NEW"}`)}, nil, history.Unknown},
		{"NotOurs", answer{status: 502, body: []byte(`<html>`)}, nil, history.Unknown},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := outcome(test.a, test.err); got.Outcome != test.want {
				t.Errorf("got %+v, want %s", got, test.want)
			}
		})
	}
}
