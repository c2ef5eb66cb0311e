package embedetcd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// The defaults of [Config].
const (
	// DefaultAddr lets the operating system choose a free port on loopback.
	DefaultAddr = "127.0.0.1:0"
	// DefaultQuotaBytes is the space quota: at it, etcd refuses new grants while
	// renewals and releases go on.
	DefaultQuotaBytes = 1 << 30
	// MinQuotaBytes is the least space quota that can be asked for.
	MinQuotaBytes = 1 << 20
	// CloseTimeout bounds [Server.Close].
	CloseTimeout = 10 * time.Second
)

// A Config says where an embedded etcd keeps its data and listens. The zero value
// of each field but Dir is its default.
type Config struct {
	// Dir is the data directory, created if absent. Required.
	Dir string
	// ClientAddr is the host:port for clients, [DefaultAddr] if empty. Port 0
	// stands for a free port; see [Server.Endpoints].
	ClientAddr string
	// PeerAddr is the host:port for other members, [DefaultAddr] if empty. No
	// other member ever joins; etcd insists on listening.
	PeerAddr string
	// AllowRemote permits addresses beyond loopback. Whoever reaches the client
	// address can read and end every lease.
	AllowRemote bool
	// QuotaBytes bounds the database, [DefaultQuotaBytes] if 0.
	QuotaBytes int64
	// Logger receives etcd's warnings and errors; nothing is logged if nil.
	Logger *zap.Logger
	// UnsafeNoSync skips fsync. A crash of the host may then lose granted epochs,
	// so it is for tests only.
	UnsafeNoSync bool
}

func (c Config) withDefaults() Config {
	if c.ClientAddr == "" {
		c.ClientAddr = DefaultAddr
	}
	if c.PeerAddr == "" {
		c.PeerAddr = DefaultAddr
	}
	if c.QuotaBytes == 0 {
		c.QuotaBytes = DefaultQuotaBytes
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Validate names everything that is wrong with c in one error of
// [coord.CodeOptionsInvalid], or returns nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []string
	if c.Dir == "" {
		bad = append(bad, "Dir is empty")
	}
	for _, a := range []struct{ name, addr string }{{"ClientAddr", c.ClientAddr}, {"PeerAddr", c.PeerAddr}} {
		if why := checkAddr(a.addr, c.AllowRemote); why != "" {
			bad = append(bad, fmt.Sprintf("%s %q %s", a.name, a.addr, why))
		}
	}
	if c.QuotaBytes < MinQuotaBytes {
		bad = append(bad, fmt.Sprintf("QuotaBytes is %d, less than %d", c.QuotaBytes, MinQuotaBytes))
	}
	if bad == nil {
		return nil
	}
	return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "embedded etcd", Detail: strings.Join(bad, "; ")}
}

func checkAddr(addr string, allowRemote bool) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "is not host:port"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "has no port number"
	}
	ip := net.ParseIP(host)
	if ip == nil {
		// etcd binds to addresses, not to names, and a name could resolve to
		// something reachable from outside.
		return "has no IP address as its host"
	}
	if !ip.IsLoopback() && !allowRemote {
		return "is not a loopback address, and remote access is not allowed"
	}
	return ""
}
