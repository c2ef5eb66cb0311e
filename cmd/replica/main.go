// Command replica serves tenants' ledgers: each tenant has its own SQLite ledger,
// and of all replicas that share an etcd and a store of copies exactly one at a
// time may write it.
//
// Started with nothing configured it runs an etcd of its own, keeps copies in a
// directory and listens on loopback. SIGTERM, SIGINT and SIGHUP (a terminal that
// closes) hand every tenant off and exit with status 0, or with 1 naming the tenants
// that could not be; a second signal exits at once with status 130. A configuration that is refused, and
// every other failure, exits with 1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// exitInterrupted is the status after a second signal: nothing was handed off
// that had not been already.
const exitInterrupted = 130

// lastWords bounds how long the last line may take to be written: whoever reads the log
// may have stopped, and the process is to end.
const lastWords = time.Second

// sayLast writes why the process ends now.
func sayLast(signal os.Signal) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		newLogger(os.Stderr).Warn("a second signal: exiting at once; what is not handed off yet loses what no copy holds", zap.Stringer("signal", signal))
	}()
	select {
	case <-said:
	case <-time.After(lastWords):
	}
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-signals
		stop()
		sayLast(<-signals)
		os.Exit(exitInterrupted)
	}()
	if err := newCommand(os.Environ()).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}
