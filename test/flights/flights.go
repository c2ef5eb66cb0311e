// Package flights turns real flight records into tenants and events, for tests
// and demonstrations: each origin airport is an end user of one organization, and
// each record an event in that user's ledger.
package flights

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

//go:embed flights.json
var records []byte

// Organization is whose end users the airports are.
const Organization = "airline"

const issuer = "https://idp.example/airline"

// demoKey derives the tenant ids. A real organization's key is a secret.
var demoKey = bytes.Repeat([]byte{5}, coord.MinOrganizationKey)

// A Flight is one record and where it belongs.
type Flight struct {
	Key     coord.Key
	Airport string // of origin
	Event   Event
}

// An Event is the body of an append, as the HTTP API takes it.
type Event struct {
	Actor     string          `json:"actor"`
	Kind      string          `json:"kind"`
	SubjectID string          `json:"subject_id"`
	Payload   json.RawMessage `json:"payload"`
	IdemKey   string          `json:"idem_key"` // stable: replaying the records appends nothing twice
}

// Load returns the flights in the order of the records.
func Load() ([]Flight, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(records, &raw); err != nil {
		return nil, fmt.Errorf("flights: %w", err)
	}
	secret, err := coord.NewOrganizationKey(demoKey)
	if err != nil {
		return nil, err
	}
	flights := make([]Flight, 0, len(raw))
	for i, payload := range raw {
		f, err := newFlight(secret, i, payload)
		if err != nil {
			return nil, fmt.Errorf("flights: record %d: %w", i, err)
		}
		flights = append(flights, f)
	}
	return flights, nil
}

func newFlight(secret coord.OrganizationKey, i int, payload json.RawMessage) (Flight, error) {
	var record struct{ Origin, Destination string }
	if err := json.Unmarshal(payload, &record); err != nil {
		return Flight{}, err
	}
	tenant, err := secret.TenantID(issuer, record.Origin)
	if err != nil {
		return Flight{}, err
	}
	key, err := coord.NewKey(Organization, tenant)
	if err != nil {
		return Flight{}, err
	}
	return Flight{
		Key: key, Airport: record.Origin,
		Event: Event{
			Actor: "replay", Kind: "flight.recorded", SubjectID: record.Origin + "-" + record.Destination,
			Payload: payload, IdemKey: fmt.Sprintf("flight-%04d", i),
		},
	}, nil
}
