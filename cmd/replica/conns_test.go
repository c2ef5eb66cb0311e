package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// RE-3: a connection on which nothing was asked does not hold a shutdown, and one on
// which something is being answered still does.
func TestShutdownWaitsForAnswersOnly(t *testing.T) {
	fresh := &freshConns{}
	asked, answer := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	})}
	fresh.watch(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	got := make(chan error, 1)
	go func() {
		resp, err := client.Get("http://" + l.Addr().String())
		if err == nil {
			resp.Body.Close()
		}
		got <- err
	}()
	<-asked
	idle, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	for deadline := time.Now().Add(time.Minute); fresh.count() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection was not noticed")
		}
	}
	down := make(chan error, 1)
	began := time.Now()
	go func() { down <- server.Shutdown(t.Context()) }()
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v, want its end", err)
	}
	select {
	case <-down:
		t.Error("the shutdown did not wait for the answer")
	default:
	}
	close(answer)
	if err := errors.Join(<-got, <-down); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second { // net/http alone takes five
		t.Errorf("the shutdown took %v", took)
	}
	<-served
}

func (f *freshConns) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.conns)
}
