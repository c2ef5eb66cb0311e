package httpapi

import (
	"math"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leaseholddb/leasehold/router"
)

const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// The buckets, in seconds. Those of fences reach over every lease that may be granted.
var (
	latencyBuckets = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	fenceBuckets   = [...]float64{.05, .1, .25, .5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 30, 60, 120, 300, 600}
)

// metrics are those of one replica, in a registry of their own.
type metrics struct {
	registry *prometheus.Registry

	inFlight       prometheus.Gauge
	requests       *prometheus.CounterVec // by route, code
	forwards       *prometheus.CounterVec // by outcome
	epochs         prometheus.Counter
	renewals       prometheus.Counter
	snapshots      *prometheus.CounterVec // by result
	proofs         *prometheus.CounterVec // by result
	handoffs       prometheus.Counter
	abandons       prometheus.Counter
	drainTimeouts  prometheus.Counter
	lost           prometheus.Counter
	skippedCopies  prometheus.Counter
	droppedEvents  prometheus.Counter
	droppedStreams prometheus.Counter
	handshakes     prometheus.Counter

	ackFence     prometheus.Histogram
	renewalTime  prometheus.Histogram
	openTime     prometheus.Histogram
	snapshotTime prometheus.Histogram
	handoffPause prometheus.Histogram
}

func newMetrics(version string) *metrics {
	r := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "leasehold", Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "leasehold", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "leasehold", Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	m := &metrics{
		registry:       r,
		requests:       vector("http_requests_total", "Requests answered, by route and status.", "route", "code"),
		forwards:       vector("forwards_total", "Requests forwarded to the tenant's owner, by outcome.", "outcome"),
		epochs:         counter("epochs_granted_total", "Leases granted to this replica."),
		renewals:       prometheus.NewCounter(renewalsOpts(resultOK)),
		snapshots:      vector("snapshots_total", "Copies committed, and attempts that failed.", "result"),
		proofs:         vector("copy_proofs_total", "Drills that restored a tenant's newest copy, and those that failed.", "result"),
		handoffs:       counter("handoffs_total", "Tenants given up with every write in a committed copy; drains that ended well."),
		abandons:       counter("unflushed_releases_total", "Tenants given up without a final copy: abandoned, forgotten or not opened."),
		drainTimeouts:  counter("drain_timeouts_total", "Drains that running work outlasted."),
		lost:           counter("leases_lost_total", "Tenures that ended without being released."),
		skippedCopies:  counter("copies_skipped_total", "Copies that a restore did not trust."),
		droppedEvents:  counter("events_dropped_total", "Events that were not observed."),
		droppedStreams: counter("event_streams_dropped_total", "Event streams cut off because the client fell behind."),
		handshakes:     counter("tls_handshakes_failed_total", "Connections that ended before their TLS handshake had succeeded."),

		ackFence:     histogram("ack_fence_remaining_seconds", "Time that was left until the fence when a request that may write was acknowledged.", fenceBuckets[:]),
		renewalTime:  histogram("lease_renewal_seconds", "Time that renewals which succeeded took.", latencyBuckets[:]),
		openTime:     histogram("open_seconds", "Time from a grant until the tenant was served: restore, check and claim.", latencyBuckets[:]),
		snapshotTime: histogram("snapshot_seconds", "Time from the beginning of a copy's image to its commit.", latencyBuckets[:]),
		handoffPause: histogram("handoff_pause_seconds", "Time from the first call that a handoff refused to the release of the lease.", latencyBuckets[:]),
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.snapshots.WithLabelValues(result)
		m.proofs.WithLabelValues(result)
	}
	for _, outcome := range []string{forwardAnswered, forwardUnreachable, forwardLost} {
		m.forwards.WithLabelValues(outcome)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "build_info", Help: "Constant 1, labelled with what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "leasehold", Name: "requests_in_flight", Help: "HTTP requests that have arrived and are not answered yet."})
	r.MustRegister(build, m.inFlight, m.renewals, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// renewalsOpts are for one result each: the failures are the router's own count, since they
// are not all events.
func renewalsOpts(result string) prometheus.CounterOpts {
	return prometheus.CounterOpts{
		Namespace: "leasehold", Name: "lease_renewals_total", Help: "Lease renewals, by result.",
		ConstLabels: prometheus.Labels{"result": result},
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// begin counts a request in; end counts it out.
func (m *metrics) begin() { m.inFlight.Inc() }

func (m *metrics) end(route string, status int) {
	m.inFlight.Dec()
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// acknowledged notes how far the fence was. A negative time counts as none.
func (m *metrics) acknowledged(left time.Duration) { m.ackFence.Observe(max(0, left.Seconds())) }

func (m *metrics) forwarded(outcome string) { m.forwards.WithLabelValues(outcome).Inc() }
func (m *metrics) streamDropped()           { m.droppedStreams.Inc() }

// observe counts an event.
func (m *metrics) observe(e router.Event) {
	m.droppedEvents.Add(float64(e.Dropped))
	switch e.Kind {
	case router.EventAcquired:
		m.epochs.Inc()
	case router.EventRestored:
		m.openTime.Observe(e.Took.Seconds())
		m.skippedCopies.Add(float64(len(e.Skipped)))
	case router.EventRenewed:
		m.renewalTime.Observe(e.Took.Seconds())
		m.renewals.Inc()
	case router.EventSnapshot:
		m.snapshotTime.Observe(e.Took.Seconds())
		m.snapshots.WithLabelValues(resultOK).Inc()
	case router.EventSnapshotFailed:
		m.snapshots.WithLabelValues(resultFailed).Inc()
	case router.EventProved:
		m.proofs.WithLabelValues(resultOK).Inc()
	case router.EventProofFailed:
		m.proofs.WithLabelValues(resultFailed).Inc()
	case router.EventDrainTimeout:
		m.drainTimeouts.Inc()
	case router.EventLost:
		m.lost.Inc()
	case router.EventReleased:
		if e.Flushed {
			m.handoffs.Inc()
			m.handoffPause.Observe(e.Took.Seconds())
		} else {
			m.abandons.Inc()
		}
	}
}

// watch adds what is counted when somebody asks.
func (m *metrics) watch(r *router.Router, ready func() float64) {
	failed := prometheus.NewCounterFunc(renewalsOpts(resultFailed), func() float64 { return float64(r.FailedRenewals()) })
	m.registry.MustRegister(newTenantGauge(r), failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "ready", Help: "1 while /readyz answers 200, and 0 while it does not.",
	}, ready))
}

// watchCertificate adds when the server's certificate ends.
func (m *metrics) watchCertificate(ends func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "tls_certificate_end_timestamp_seconds", Help: "When the certificate that clients are shown is no longer good, in Unix time.",
	}, func() float64 { return float64(ends().Unix()) }))
}

// watchFiles adds how many files cannot be read again.
func (m *metrics) watchFiles(stale func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "access_files_stale", Help: "Files of tokens, certificate and key that cannot be read again; what they said before is in force.",
	}, func() float64 { return float64(stale()) }))
}

// A tenantGauge counts a router's tenants by state, and says what their ledgers take
// of the disk and how old the proofs of their copies are.
type tenantGauge struct {
	router *router.Router
	desc, files, logs, largest, proofAge,
	fence, uncopied, behind, idle *prometheus.Desc
}

func newTenantGauge(r *router.Router) *tenantGauge {
	return &tenantGauge{
		router:   r,
		desc:     prometheus.NewDesc("leasehold_tenants", "Tenants held by this replica, by state.", []string{"state"}, nil),
		idle:     prometheus.NewDesc("leasehold_tenants_idle", "Tenants held by this replica that serve, but have no connection open since nobody uses them.", nil, nil),
		files:    prometheus.NewDesc("leasehold_ledger_bytes", "Size of the ledgers that are open here, without their write-ahead logs.", nil, nil),
		logs:     prometheus.NewDesc("leasehold_wal_bytes", "Size of all write-ahead logs; grows while reads are left open beside writes.", nil, nil),
		largest:  prometheus.NewDesc("leasehold_wal_largest_bytes", "Size of the largest write-ahead log.", nil, nil),
		proofAge: prometheus.NewDesc("leasehold_copy_proof_age_seconds", "Time since the newest copy of a tenant held here was last proved restorable, the longest of all tenants that have a proof.", nil, nil),
		fence:    prometheus.NewDesc("leasehold_fence_remaining_seconds", "Time until the fence if no renewal comes, the shortest of all tenants held here; absent if none is.", nil, nil),
		uncopied: prometheus.NewDesc("leasehold_uncopied_seconds", "Age that the oldest acknowledged write which no copy holds can have, the greatest of all tenants held here: what a crash would lose.", nil, nil),
		behind:   prometheus.NewDesc("leasehold_uncopied_tenants", "Tenants held here with acknowledged writes that no copy holds.", nil, nil),
	}
}

func (g *tenantGauge) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.desc, g.files, g.logs, g.largest, g.proofAge, g.fence, g.uncopied, g.behind, g.idle} {
		out <- d
	}
}

func (g *tenantGauge) Collect(out chan<- prometheus.Metric) {
	counts := map[router.State]int{router.StateServing: 0, router.StateDraining: 0, router.StateFlushing: 0, router.StateForgetting: 0}
	var files, logs, largest, behind, idle int64
	var oldest, uncopied time.Duration
	fence := time.Duration(math.MaxInt64)
	for _, h := range g.router.Handles() {
		counts[h.State()]++
		// A handle that is just being closed has no figures, which is as it should be.
		stats, err := h.Stats()
		files, logs, largest = files+stats.FileBytes, logs+stats.WALBytes, max(largest, stats.WALBytes)
		if err == nil && stats.Connections == 0 && h.State() == router.StateServing {
			idle++ // as Handle.Idle has it
		}
		age, _ := h.Proved()
		oldest = max(oldest, age)
		fence = min(fence, max(0, h.Remaining()))
		if age := h.Uncopied(); age > 0 {
			behind, uncopied = behind+1, max(uncopied, age)
		}
	}
	for desc, n := range map[*prometheus.Desc]int64{g.files: files, g.logs: logs, g.largest: largest, g.behind: behind, g.idle: idle} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
	if fence < math.MaxInt64 {
		out <- prometheus.MustNewConstMetric(g.fence, prometheus.GaugeValue, fence.Seconds())
	}
	out <- prometheus.MustNewConstMetric(g.uncopied, prometheus.GaugeValue, uncopied.Seconds())
	out <- prometheus.MustNewConstMetric(g.proofAge, prometheus.GaugeValue, oldest.Seconds())
	for state, n := range counts {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), state.String())
	}
}
