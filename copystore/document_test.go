package copystore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

func measured(body string) (int64, string) {
	sum := sha256.Sum256([]byte(body))
	return int64(len(body)), hex.EncodeToString(sum[:])
}

func encodeOrigin(t testing.TB, key coord.Key, epoch coord.Epoch, from *copystore.Ref) string {
	t.Helper()
	b, err := copystore.Origin{
		Format: copystore.FormatVersion, Key: key, Epoch: epoch, Revision: 7, Owner: "replica-1",
		Time: copystore.NewTimestamp(time.UnixMilli(1_700_000_000_123)), From: from,
	}.Encode()
	must(t, err)
	return string(b)
}

func encodeManifest(t testing.TB, key coord.Key, ref copystore.Ref, body string, events int64) string {
	t.Helper()
	m := copystore.Manifest{
		Format: copystore.FormatVersion, Key: key, Epoch: ref.Epoch, Revision: 7, Seq: ref.Seq, Owner: "replica-1",
		Time: copystore.NewTimestamp(time.UnixMilli(1_700_000_000_123)), Events: events,
	}
	m.Size, m.SHA256 = measured(body)
	b, err := m.Encode()
	must(t, err)
	return string(b)
}

// sealed gives a body the checksum that it needs to be read at all.
func sealed(body string) string {
	sum := sha256.Sum256([]byte(body))
	return fmt.Sprintf("%s,\"sum\":\"%x\"}\n", strings.TrimSuffix(body, "}"), sum)
}

// What is stored is a format: it must not change unnoticed.
func TestStoredForm(t *testing.T) {
	key := testKey(t, "a")
	origin := `{"format":1,"key":"acme/t-` + strings.Repeat("a", 32) + `","epoch":3,"revision":7,"owner":"replica-1","time":1700000000123,"from":{"epoch":2,"seq":5}}`
	if got := encodeOrigin(t, key, 3, &copystore.Ref{Epoch: 2, Seq: 5}); got != sealed(origin) {
		t.Errorf("origin is %s", got)
	}
	manifest := `{"format":1,"key":"acme/t-` + strings.Repeat("a", 32) + `","epoch":3,"revision":7,"seq":9,"owner":"replica-1","size":4,` +
		`"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","time":1700000000123,"events":2,"parent":null}`
	if got := encodeManifest(t, key, copystore.Ref{Epoch: 3, Seq: 9}, "test", 2); got != sealed(manifest) {
		t.Errorf("manifest is %s", got)
	}
}

func TestParseOriginIsStrict(t *testing.T) {
	key := testKey(t, "a")
	good := encodeOrigin(t, key, 3, &copystore.Ref{Epoch: 2, Seq: 5})
	if _, err := copystore.ParseOrigin([]byte(good), key, 3); err != nil {
		t.Fatal(err)
	}
	body := good[:strings.LastIndex(good, `,"sum"`)] + "}"
	edit := func(old, repl string) string {
		if !strings.Contains(body, old) {
			t.Fatalf("%s has no %s", body, old)
		}
		return sealed(strings.Replace(body, old, repl, 1))
	}
	cases := map[string]string{
		"empty":            "",
		"null":             "null",
		"unsealed":         body,
		"spaces around":    " " + good,
		"trailing data":    good + "{}",
		"trailing newline": good + "\n",
		"unknown member":   edit(`"epoch"`, `"extra":1,"epoch"`),
		"repeated member":  edit(`"owner"`, `"owner":"replica-1","owner"`),
		"missing member":   edit(`"owner":"replica-1",`, ``),
		"another case":     edit(`"owner"`, `"Owner"`),
		"another order":    edit(`"epoch":3,"revision":7`, `"revision":7,"epoch":3`),
		"space inside":     edit(`"epoch":3`, `"epoch": 3`),
		"another number":   edit(`"epoch":3`, `"epoch":3.0`),
		"epoch as text":    edit(`"epoch":3`, `"epoch":"3"`),
		"another epoch":    edit(`"epoch":3`, `"epoch":4`),
		"time as text":     edit(`1700000000123`, `"2023-11-14T22:13:20Z"`),
		"negative time":    edit(`1700000000123`, `-1`),
		"no key":           edit(`"acme/t-`, `"acme/u-`),
		"bad UTF-8":        edit(`replica-1`, "replica-\xff"),
		"no owner":         edit(`replica-1`, ``),
		"negative rev":     edit(`"revision":7`, `"revision":-7`),
		"from same epoch":  edit(`{"epoch":2,`, `{"epoch":3,`),
		"from seq 0":       edit(`"seq":5`, `"seq":0`),
		"from epoch 0":     edit(`{"epoch":2,`, `{"epoch":0,`),
		"from with more":   edit(`"seq":5`, `"seq":5,"seq":5`),
		"format 2":         edit(`"format":1`, `"format":2`),
		"too long":         sealed(body + strings.Repeat(" ", 16<<10)),
	}
	for name, text := range cases {
		if o, err := copystore.ParseOrigin([]byte(text), key, 3); err == nil {
			t.Errorf("%s: %s is read as %+v", name, text, o)
		}
	}
	if _, err := copystore.ParseOrigin([]byte(good), testKey(t, "b"), 3); err == nil {
		t.Error("another tenant's origin is read")
	}
}

func FuzzParseManifest(f *testing.F) {
	key, ref := testKey(f, "a"), copystore.Ref{Epoch: 3, Seq: 9}
	f.Add([]byte(encodeManifest(f, key, ref, "test", 2)))
	f.Add([]byte(sealed(`{"format":1}`)))
	f.Add([]byte(`{"format":1,"sum":"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := copystore.ParseManifest(b, key, ref)
		if err != nil {
			return
		}
		if m.Key != key || m.Ref() != ref || m.Size <= 0 || m.Events < 0 {
			t.Errorf("read %+v from %s", m, b)
		}
		if again, err := m.Encode(); err != nil || string(again) != string(b) {
			t.Errorf("%s is stored as %s (%v)", b, again, err)
		}
	})
}

func FuzzParseOrigin(f *testing.F) {
	key := testKey(f, "a")
	f.Add([]byte(encodeOrigin(f, key, 3, nil)))
	f.Add([]byte(encodeOrigin(f, key, 3, &copystore.Ref{Epoch: 2, Seq: 5})))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := copystore.ParseOrigin(b, key, 3)
		if err != nil {
			return
		}
		if o.Key != key || o.Epoch != 3 || o.From != nil && (o.From.Epoch >= 3 || o.From.Epoch == 0 || o.From.Seq == 0) {
			t.Errorf("read %+v from %s", o, b)
		}
		if again, err := o.Encode(); err != nil || string(again) != string(b) {
			t.Errorf("%s is stored as %s (%v)", b, again, err)
		}
	})
}
