package main

import (
	"net"
	"net/http"
	"sync"
)

// A freshConns knows the connections on which nothing has been asked yet. An
// http.Server that shuts down waits for those for seconds, because a request could
// be on its way; once every tenant is gone the answer would be a refusal anyway, and
// a client whose request was never read sends it again, elsewhere.
type freshConns struct {
	mu struct {
		sync.Mutex
		conns map[net.Conn]struct{}
	}
}

// watch makes a server close them when it shuts down.
func (f *freshConns) watch(server *http.Server) {
	server.ConnState = f.note
	server.RegisterOnShutdown(f.close)
}

// note is for [http.Server.ConnState].
func (f *freshConns) note(conn net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state != http.StateNew {
		delete(f.mu.conns, conn)
		return
	}
	if f.mu.conns == nil {
		f.mu.conns = make(map[net.Conn]struct{})
	}
	f.mu.conns[conn] = struct{}{}
}

// close closes them.
func (f *freshConns) close() {
	f.mu.Lock()
	var conns []net.Conn
	for conn := range f.mu.conns {
		conns = append(conns, conn)
	}
	f.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // one that has gone already is closed enough
	}
}
