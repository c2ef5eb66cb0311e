# The two commands to know: make run, make test. Everything else is below them.

GO       ?= go
BIN      := bin/replica
FUZZTIME ?= 30s
# Race builds of etcd and SQLite are slow to start on two cores.
TESTFLAGS ?= -race -timeout 30m

.PHONY: all
all: $(BIN)

.PHONY: $(BIN)
$(BIN):
	@mkdir -p bin
	$(GO) build -o $(BIN) ./cmd/replica

## run: serve on loopback with an embedded etcd, and print what to try next
.PHONY: run
run: $(BIN)
	./$(BIN)

## test: vet, staticcheck, and every test under the race detector
.PHONY: test
test: lint
	$(GO) test $(TESTFLAGS) $$($(GO) list ./... | grep -v -e /leasehold/test -e /sim/model)
	@# Without the race detector: one goroutine, and millions of states.
	$(GO) test -timeout 20m ./sim/model
	@# Alone: these start many processes and measure how soon they act.
	$(GO) test $(TESTFLAGS) ./test/...
	$(MAKE) compat

## compat: goose, sqlx and GORM, unchanged, on a guarded database
.PHONY: compat
compat:
	cd test/compat && $(GO) vet ./... && $(GO) test $(TESTFLAGS) ./...

.PHONY: lint
lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

## demo: three replicas, real flight records, a drain and a crash under load, in under a minute
.PHONY: demo
demo: $(BIN)
	$(GO) run ./test/demo -replica ./$(BIN)

## chaos: real processes under faults for DURATION, on a directory and on S3 (STORE=…), judged by what clients saw; needs root
DURATION ?= 10m
SEED ?= 1
STORE ?= both
.PHONY: chaos
chaos:
	$(GO) run ./test/chaos -duration $(DURATION) -seed $(SEED) -store $(STORE) $(CHAOSFLAGS)

## bench: what it costs, against named references; a table and bench.json
.PHONY: bench
bench:
	$(GO) run ./test/bench $(BENCHFLAGS)

## cycles: 5,000 acquire-wait-cancel cycles on etcd leave no goroutine, watch or lease
.PHONY: cycles
cycles:
	$(GO) test -timeout 30m -run TestCyclesLeaveNothing ./etcdlease -cycles 5000

## conformance: the lease suite on an etcd of yours, such as an older one: ETCD=http://127.0.0.1:2379
.PHONY: conformance
conformance:
	LEASEHOLD_TEST_ETCD=$(ETCD) $(GO) test -count 1 -v -run 'TestConformance|TestSixteen' ./etcdlease

## cluster: a minute of leader moves on three etcd members with a thousand tenants
.PHONY: cluster
cluster:
	$(GO) test -timeout 10m -count=1 -v -run 'TestLeaderMoves|TestStoppedLeader' ./test -cluster-tenants 1000 -cluster-time 60s

## rolling: three replicas restarted twice each under appends to 300 tenants; make test has 120
.PHONY: rolling
rolling:
	$(GO) test -timeout 10m -count=1 -v -run TestRollingRestart ./test -rolling-tenants 300

## side-by-side: the same pauses on etcd's Mutex with a SQLite file and on leasehold: updates lost by each
.PHONY: side-by-side
side-by-side:
	$(GO) run ./test/sidebyside $(SIDEFLAGS)

## model: every order of the copies protocol's steps, at bounds that take minutes
.PHONY: model
model:
	$(GO) test -timeout 30m -count=1 -v ./sim/model -full

## fuzz: each parser of foreign bytes for FUZZTIME
.PHONY: fuzz
fuzz:
	./test/fuzz.sh $(FUZZTIME)

## sim: 10,000 simulated histories; make test has a short round
.PHONY: sim
sim: $(BIN)
	./$(BIN) sim --seeds 10000 --report bin/sim.html $(SIMFLAGS)

## mutations: each safeguard taken out, or some (SAFEGUARDS=margin,lineage), and how many simulated histories it takes to notice
SAFEGUARDS ?=
.PHONY: mutations
mutations:
	$(GO) test -tags simmutation -timeout 60m -run TestEverySafeguardIsMissed -v ./sim -safeguard "$(SAFEGUARDS)"

## s3test: durable copies against a real S3 server, installed and started on loopback
.PHONY: s3test
s3test:
	$(GO) vet -tags s3 ./copystore/... ./cmd/replica
	$(GO) run ./test/s3test $(S3TESTFLAGS)

## soak: 200 copies under 500 commits a second, each checked
.PHONY: soak
soak:
	$(GO) test -tags soak -timeout 30m -run TestCopiesUnderConstantWrites -v ./router

## strace: what order a published copy reaches the disk in, as the kernel sees it
.PHONY: strace
strace:
	$(GO) test -tags strace -run TestOrderAsTheKernelSeesIt -v ./copystore/dirstore

## promtool: what Prometheus' own tool (Debian's package prometheus) says about metrics and alert rules
.PHONY: promtool
promtool:
	$(GO) vet -tags promtool ./cmd/replica/internal/httpapi
	$(GO) test -tags promtool -count 1 -run TestPromtool -v ./cmd/replica/internal/httpapi

.PHONY: help
help:
	@sed -n 's/^## //p' Makefile
