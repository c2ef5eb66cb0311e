package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

const operationsFile = "../docs/operations.md"

// A manual is the commands of the page for operators, by the name of their block.
type manual struct {
	t      *testing.T
	blocks map[string]string
	done   []string
	dir    string // where they run
	env    []string
}

// openManual also fails if a block has no name, since no test would run it.
func openManual(t *testing.T) *manual {
	t.Helper()
	text, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	m := &manual{t: t, blocks: make(map[string]string), dir: t.TempDir()}
	for _, block := range regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		name, named := strings.CutPrefix(block[1], "sh ")
		if !named || m.blocks[name] != "" {
			t.Errorf("the block %q of %s is run by nobody", block[1], operationsFile)
		}
		m.blocks[name] = block[2]
	}
	bin := t.TempDir()
	if err := os.Symlink(replicaBinary, filepath.Join(bin, "replica")); err != nil {
		t.Fatal(err)
	}
	m.set("PATH", bin+":"+os.Getenv("PATH"))
	return m
}

func (m *manual) set(name, value string) { m.env = append(m.env, name+"="+value) }

// on points the commands at a replica.
func (m *manual) on(r *replica) {
	m.set("REPLICA", r.url)
	m.set("PID", fmt.Sprint(r.cmd.Process.Pid))
}

// try runs a block as it stands on the page.
func (m *manual) try(name string) (string, error) {
	m.t.Helper()
	commands, ok := m.blocks[name]
	if !ok {
		m.t.Fatalf("%s has no commands %q", operationsFile, name)
	}
	m.done = append(m.done, name)
	cmd := exec.Command("sh", "-ec", commands)
	cmd.Dir, cmd.Env = m.dir, append(os.Environ(), m.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m *manual) run(name string) string {
	m.t.Helper()
	out, err := m.try(name)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s\n%s", name, err, m.blocks[name], out)
	}
	return out
}

// insist repeats a block, as the page tells people to.
func (m *manual) insist(name string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for {
		out, err := m.try(name)
		if err == nil {
			return out
		}
		if !pause(ctx, 200*time.Millisecond) {
			m.t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
}

// A revenant is an etcd that can be stopped and started again at the same address,
// on the same data or on older.
type revenant struct {
	t      *testing.T
	addr   string
	server *embedetcd.Server
}

func (e *revenant) start(dir string) {
	e.t.Helper()
	server, err := embedetcd.Start(e.t.Context(), embedetcd.Config{Dir: dir, ClientAddr: e.addr, UnsafeNoSync: true})
	if err != nil {
		e.t.Fatal(err)
	}
	e.server = server
}

func (e *revenant) stop() {
	e.t.Helper()
	if err := e.server.Close(); err != nil {
		e.t.Fatal(err)
	}
}

// CP-6, trap 21: etcd is restored from a backup that is older than the copies, and
// an operator does what the page says, by its very commands. Before that nothing is
// served; afterwards every acknowledged and copied write is, and no epoch comes twice.
func TestOperationsPage(t *testing.T) {
	m := openManual(t)
	etcd := &revenant{t: t, addr: embedetcd.FreeAddrT(t)}
	data, backup := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "backup")
	etcd.start(data)
	f := newFleetOn(t, etcd.server)
	keys := numberedKeys(t, 2)
	m.set("ETCD", etcd.addr)
	m.set("COPIES", f.copies)
	m.set("TENANT", keys[0].String())
	m.run("tokens")

	epochs := make(map[coord.Key][]uint64)
	write := func(r *replica, key coord.Key, id string) {
		t.Helper()
		a, err := appendEvent(t.Context(), key, note(id), r)
		if err != nil {
			t.Fatal(err)
		}
		epochs[key] = append(epochs[key], a.Epoch)
		r.must(200, "POST", tenantPath(key)+"/snapshot", nil)
	}
	a := f.start("a", "--snapshot-every", "0")
	m.on(a)
	write(a, keys[0], "one")
	if out := m.run("look"); !strings.Contains(out, keys[0].String()) || !strings.Contains(out, "e00000001") {
		t.Errorf("the commands print\n%s", out)
	}
	m.run("restart")
	if code := a.wait(patience); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	a = f.start("a", "--snapshot-every", "0", "--lease-ttl", "3s")
	m.on(a)
	write(a, keys[0], "two")
	etcd.stop()
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	etcd.start(data)
	for _, id := range []string{"three", "four"} {
		// Where etcd took longer to come back than the lease lasts, there is nothing left to hand off.
		a.eventually(patience, "POST", tenantPath(keys[0])+"/handoff", nil, func(r reply) bool { return ok(r) || r.status == 409 })
		write(a, keys[0], id)
	}
	write(a, keys[1], "since the backup")

	etcd.stop()
	etcd.start(backup)
	defer etcd.stop()
	rolledBack := func(got reply) bool { return got.code() == string(coord.CodeEpochRolledBack) }
	a.eventually(patience, "POST", tenantPath(keys[1])+"/events", note("refused"), rolledBack)
	m.run("stop")
	a.wait(patience)
	early := f.start("early")
	for _, key := range keys {
		early.eventually(patience, "POST", tenantPath(key)+"/open", nil, rolledBack)
	}
	early.signal(syscall.SIGTERM)
	early.wait(patience)

	m.insist("raise")
	b := f.start("b", "--snapshot-every", "0")
	m.on(b)
	m.run("check")
	for key, want := range map[coord.Key][]string{keys[0]: {"one", "two", "three", "four"}, keys[1]: {"since the backup"}} {
		if got := b.idemKeys(key); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", key, got, want)
		}
		if epoch := b.state(key).Epoch; epoch <= slices.Max(epochs[key]) {
			t.Errorf("%s is at epoch %d, and was at %v before", key, epoch, epochs[key])
		}
	}
	for name := range m.blocks {
		if !slices.Contains(m.done, name) {
			t.Errorf("the commands %q were not run", name)
		}
	}
}
