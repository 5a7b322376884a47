# One way to run each thing. CONTRIBUTING.md says when.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Modules of their own: what they need never reaches those who use mortise.
published := $(shell .ci/published)
nested := $(published) $(sort $(dir $(shell find test examples -name go.mod -not -path '*/testdata/*')))
# Runs a command in each of the modules given, the others too when it fails in one.
each = for m in $(1); do echo "--- $$m"; (cd $$m && $(2)) || rc=1; done; exit $$rc

# What `make fuzz` and `make soak` take: make fuzz FUZZTIME=10m
FUZZTIME ?= 60s
FUZZJOBS ?= 1
SOAK ?= 1h
# What `make bench-compare` takes: the old revision, and flags of test/bench, such as -quick, -rounds 9,
# -workload refused or -contender rueidis
BASE ?= d9e449d
COMPARE ?=
# How many sequences of random steps `make property` draws for each of its tests
PROPERTY ?= 2100
# What `make lone` takes: flags of test/bench, such as -lone.runs 3, or -lone.beside and a build of examples/lone
LONE ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## show a lock at work, in memory; nothing has to be installed
	go run ./examples/quickstart

.PHONY: test
test: deps ## the short tier, three minutes at most: all rules in memory, the quick cases on a real Redis, costs (installs what it lacks on Debian)
	@.ci/test short

# Each of the targets given, the others too when one fails, which the last line names.
define targets
@failed=; for target in $(1); do echo "=== make $$target"; \
	$(MAKE) --no-print-directory $$target || failed="$$failed $$target"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }
endef

.PHONY: verify
verify: deps ## before a merge: every test, under -race where goroutines share memory, on memory and on real Redis, faults, deployments, chaos for a minute; PostgreSQL, SQLite, etcd; models; examples; lint
	$(call targets,race verify-beside)

# What waits for most of its time, or has one process at work.
.PHONY: verify-beside
verify-beside: deps
	@.ci/together postgres 'sqlite etcd' 'model-small lint examples'

.PHONY: race
race: deps ## the tests of verify, without other stores, models, examples and lint
	@.ci/test race

.PHONY: nightly
nightly: deps ## what takes longer or needs more: other servers, Redisson, models, pages, alerts, fuzzing, soak, a thousand faults
	$(call targets,servers reservations interop model browser alerts fuzz limits property many-locks jobs command-faults guard faults-long chaos-selftest chaos-long soak)

.PHONY: property
property: deps ## a million random steps on Redis, by all adapters, and in memory answer alike; PROPERTY=10 tries it
	cd test && go test -count=1 -v -timeout 4h ./property -rapid.checks $(PROPERTY) -rapid.seed 0

.PHONY: rules
rules: deps ## the matrix of the contract's rules and the backends that keep them
	@.ci/etcd
	@rc=0; { go test -json -count=1 -parallel 16 -run TestConformance ./backend/memory ./backend/cas ./redisgo ./rueidis || rc=1; \
	for m in backend/valkey backend/postgres backend/sqlite backend/etcd; do \
	(cd $$m && go test -json -count=1 -parallel 16 -run TestConformance .) || rc=1; done; exit $$rc; } | go run ./internal/cmd/rules -page docs/explanation/stores.md

# make servers SERVERS=bin/servers/valkey-9.1, or the path of another server's binary
SERVERS ?= bin/servers/redis-8.2 bin/servers/valkey-9.1
CONFORMANCE ?= ^Test(Conformance|OnCluster|Replicas)$$

.PHONY: servers
servers: deps conformance ## the suites, the bounds of scripts, test/deploy, test/faults and test/exclusion on Redis 8.2 and Valkey 9.1; SERVERS names others
	@rc=0; for s in $(abspath $(SERVERS)); do for m in test/deploy test/faults test/exclusion; do echo "--- $$m on $$s"; \
	(cd $$m && MORTISE_SERVER=$$s go test -count=1 -timeout 15m ./...) || rc=1; done; done; exit $$rc
	@rc=0; for s in $(abspath $(SERVERS)); do echo "--- scripts on $$s"; \
	MORTISE_SERVER=$$s go test -count=1 -run '^TestEveryScriptIsBounded$$' ./scripts || rc=1; done; exit $$rc
	cd test/deploy && go test -count=1 -run 'OlderServer' -deploy.old=$(abspath $(wildcard bin/servers/redis-6.2)) .

# Without -race: the goroutines are those of package cas, whose own tests are in the race tier.
.PHONY: postgres
postgres: deps ## the suite on PostgreSQL, on servers that the tests start
	cd backend/postgres && go test -count=1 -timeout 20m -parallel 6 ./...

.PHONY: guard
guard: deps ## 10,000 transfers guarded by postgres.Guard, in processes that are stopped and killed
	cd backend/postgres && MORTISE_TRANSFERS=10000 go test -count=1 -timeout 40m -v -run '^TestTransfers$$' .

.PHONY: sqlite
sqlite: ## the suite on SQLite, on files, with processes that are killed and stopped
	cd backend/sqlite && go test -count=1 -timeout 20m -parallel 3 ./...

.PHONY: etcd
etcd: ## the suite on etcd, of one member and of three, with servers and clients that are killed and stopped (builds etcd's server)
	@.ci/etcd
	cd backend/etcd && go test -count=1 -timeout 20m -parallel 8 ./...

.PHONY: reservations
reservations: deps ## the suites of the adapters with MORTISE_GRANTS=0, as versions wait that know no grants
	MORTISE_GRANTS=0 go test -count=1 -timeout 20m -run 'Conformance|OnCluster' ./redisgo ./rueidis
	MORTISE_GRANTS=0 go test -count=1 -timeout 20m ./backend/redisproto

.PHONY: conformance
conformance: deps ## the conformance suites alone, of all adapters, on those servers
	@.ci/servers
	@.ci/conformance '$(CONFORMANCE)' $(abspath $(SERVERS))

.PHONY: other-servers
other-servers: ## the suite alone, of all adapters, on those servers
	@$(MAKE) --no-print-directory conformance CONFORMANCE='^TestConformance$$$$'

.PHONY: newest
newest: deps ## the adapters, fxmodule and the middleware with the newest go-redis, rueidis, valkey-go, fx and grpc: build, vet, short tests
	@.ci/newest

.PHONY: exclusion
exclusion: deps ## processes that fight for a lock of each kind, exclusion counted outside Redis
	cd test/exclusion && go test -count=1 -v -timeout 15m -fleet.time=5s ./...
	cd test/faults && go test -count=1 -v -timeout 15m -run 'Silence|ACancelledWaiter|ManyNames|Reconnect' -parallel 4 -faults.timed .

# The last revision with the wire of before: make older OLDER=<revision>
OLDER ?=
.PHONY: older
older: ## archive the product at revision OLDER, which test/exclusion has processes of in its fleets of two versions
	test/exclusion/archive-older $(OLDER)

.PHONY: jobs
jobs: deps ## leaders that are killed, stopped and cut off; 1,000 ticks of a schedule among processes whose clocks are 2 s apart
	cd test/jobs && go test -count=1 -v -timeout 15m -jobs.ticks=1000 ./...

.PHONY: command-faults
command-faults: deps ## 200 rounds of faults to `mortise run`: commands, mortise, its guardian and the store are killed and stopped, exclusion counted outside
	cd cmd/mortise && go test -count=1 -v -timeout 30m -run TestFaults -faults.rounds=200 .

.PHONY: many-locks
many-locks: deps ## ls, watch, top and the console of the command over 100,000 locks among 1,000,000 other keys: memory, first page, slow log
	cd cmd/mortise && go test -count=1 -v -timeout 15m -run TestManyLocks -many .

.PHONY: fairness
fairness: deps ## the fair lock between 8 processes: who gets it how often, waits, commands, dead waiters
	cd test/exclusion && go test -count=1 -v -timeout 15m -run 'Fairness|Queue' -fairness.time=10s ./...

.PHONY: interop
interop: deps ## locks shared with the real Redisson (installs a JDK and Maven on Debian)
	cd test/interop && go test -race -count=1 -timeout 20m ./...

.PHONY: bench
bench: deps ## ours and others side by side, a quarter of an hour, written to docs; keep the machine quiet meanwhile
	test/bench/peers
	cd test/bench && go test -run '^$$' -bench Table -benchtime 1x -timeout 2h -docs ../../docs/reference .

.PHONY: shares
shares: deps ## what Java's threads get of a lock that goroutines wait for too, and how long they wait: 5 runs a row
	cd test/interop && go test -count=1 -v -timeout 60m -run TestShares -shares 3s -shares.runs 5 .

.PHONY: bench-stores
bench-stores: deps ## the locks of PostgreSQL, SQLite and etcd beside those that these have themselves, in turns, commits on disk
	@.ci/etcd
	@rc=0; for m in postgres sqlite etcd; do echo "--- $$m"; \
	(cd backend/$$m && go test -run '^$$' -bench Beside -benchtime 1x -timeout 30m .) || rc=1; done; exit $$rc

.PHONY: bench-compare
bench-compare: deps ## the working tree against revision BASE, in turns, and BASE against itself: rates, commands, allocations; COMPARE=-quick tries it
	test/bench/compare $(BASE) $(COMPARE)

.PHONY: lone
lone: deps ## one goroutine and one free name, beside the same two commands sent by hand; LONE='-workload timeout' takes a part
	cd test/bench && go test -run '^$$' -bench 'Lone$$' -benchtime 1x -timeout 30m $(LONE) .

.PHONY: bench-fleet
bench-fleet: deps ## how 1 to 16 processes that wait for one lock are served: by revision BASE, the working tree and peers, in turns
	test/bench/peers
	BENCH=Fleet test/bench/compare $(BASE) $(COMPARE)

.PHONY: faults
faults: deps ## lost replies, held requests, killed connections, bad servers, 10,000 waiters
	cd test/faults && go test -race -count=1 -timeout 15m ./...

.PHONY: faults-long
faults-long: deps ## the same with 50,000 leases and waiters; half an hour at most
	cd test/faults && MORTISE_FAULTS=long go test -race -count=1 -timeout 30m ./...

.PHONY: chaos
chaos: deps ## every fault once in every deployment, while processes fight for locks; CHAOS='-chaos.seed=7' repeats one
	cd test/chaos && go test -count=1 -v -timeout 0 -run 'TestChaos$$' -chaos $(CHAOS) .

.PHONY: chaos-long
chaos-long: deps ## the same until it was a thousand faults and a million operations; its report goes to docs/explanation/chaos.md
	cd test/chaos && go test -count=1 -v -timeout 0 -run 'TestChaos$$' -chaos -chaos.faults=1000 -chaos.operations=1000000 -chaos.report=$(CURDIR)/docs/explanation $(CHAOS) .

.PHONY: chaos-selftest
chaos-selftest: deps ## locks that are broken in fifteen ways, each of which the same harness must catch
	cd test/chaos && go test -count=1 -v -timeout 15m -run 'Selftest' -chaos .

# Where the playground is built: its page is copied there if that is not the page's own directory.
PLAYGROUND ?= docs/playground

.PHONY: playground-build
playground-build:
	@mkdir -p '$(PLAYGROUND)'
	GOOS=js GOARCH=wasm go build -trimpath -ldflags '-s -w' -o '$(PLAYGROUND)/mortise.wasm' ./internal/cmd/playground
	@cp "$$(go env GOROOT)/lib/wasm/wasm_exec.js" '$(PLAYGROUND)'
	@[ docs/playground -ef '$(PLAYGROUND)' ] || cp docs/playground/*.html docs/playground/*.css \
		docs/playground/page.js docs/playground/stories.js docs/playground/worker.js '$(PLAYGROUND)'

.PHONY: playground
playground: playground-build ## the playground, services that share a lock in a page, on http://127.0.0.1:8017
	go run ./internal/cmd/playground

# What `make browser` takes: the directory for pictures of each step, such as PICTURES=pictures
PICTURES ?=

.PHONY: browser
browser: docs ## the site and the playground in a real Chromium (installs it on Debian); PICTURES=pictures takes pictures
	@.ci/install-deps chromium
	cd test/browser && go test -count=1 -timeout 10m -parallel 4 $(if $(PICTURES),-pictures '$(abspath $(PICTURES))') .

.PHONY: pictures
pictures: deps ## the pictures of docs/how-to/console.md, made by a real Chromium (installs it on Debian)
	@.ci/install-deps chromium
	cd test/browser && go test -count=1 -run TestTheConsoleAsTheGuideShowsIt -pictures '$(abspath docs/assets)' .

.PHONY: alerts
alerts: ## each alert of docs/alerts fires where the thing it is about breaks, and not before (installs Prometheus on Debian)
	@.ci/install-deps promtool
	cd test/alerts && go test -count=1 -timeout 10m ./...

.PHONY: fuzz
fuzz: deps ## each fuzz target for FUZZTIME, 60 s by default, one after the other
	@FUZZTIME=$(FUZZTIME) FUZZJOBS=$(FUZZJOBS) .ci/fuzz

# Each fuzz target takes its 20 s whatever else goes on.
.PHONY: fuzz-beside
fuzz-beside: ## fuzz for 20 s each, beside something that waits for much of its time
	@nice -n 10 $(MAKE) --no-print-directory fuzz FUZZTIME=20s FUZZJOBS=4

.PHONY: limits
limits: deps ## a million names, 10,000 holds, 10,000 readers, 64 KiB names: what they leave behind
	cd test/fuzz && go test -count=1 -v -timeout 30m -run Limit -limits .

.PHONY: soak
soak: deps ## load with faults for SOAK, an hour by default: memory, connections, keys and all else stay flat
	cd test/chaos && go test -count=1 -v -timeout 0 -run 'TestSoak$$' -soak=$(SOAK) -soak.csv=$(CURDIR)/soak.csv .

.PHONY: model
model: ## the protocol checked by machine: small bounds exhaustively, and mutations that must be caught (installs spin on Debian)
	@.ci/install-deps spin
	@CC="$$(go env CC)" test/model/run

.PHONY: model-small
model-small: ## the first configuration of each model
	@.ci/install-deps spin
	@CC="$$(go env CC)" test/model/run small

.PHONY: failover
failover: deps ## kill masters and move slots under load: the first lock within a second of the new master, none lost that had a replica
	cd test/deploy && go test -count=3 -v -timeout 15m -run 'TestAFailover|TestASlotMovesAndFailsOver' -deploy.resume=1s ./...

.PHONY: examples
examples: deps ## run every example, in memory; those with a go.mod of their own on Redis too
	for f in examples/*/main.go examples/apps/*/main.go; do go run -C "$${f%/main.go}" .; done
	@rc=0; $(call each,$(filter examples/%,$(nested)),go test -count=1 ./...)

.PHONY: docs
docs: playground-build ## build the site from docs/ into bin/site, and check its links; `.ci/docs serve` shows it while you write
	.ci/docs
	go test -count=1 -run 'Links|Pages|Reference|Readme|NamedTests' ./examples

.PHONY: by-version
by-version: deps ## what is committed, installed by its version, each module in a program of its own
	.ci/by-version

.PHONY: generate
generate: ## write all generated code anew: scripts, adapters, mocks
	go generate ./...

.PHONY: lint
lint: tools ## gofmt, and golangci-lint in all modules (.golangci.yml: layers, sizes, go vet, staticcheck); what test/tools checks
	@files=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs ls -d 2>/dev/null | xargs gofmt -l); \
	if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi
	@rc=0; GOOS=js GOARCH=wasm go vet ./internal/cmd/playground || rc=1; \
	(cd test/tools && go test -count=1 ./...) || rc=1; \
	.ci/lint || rc=1; exit $$rc

# What make api compares with: make api API=<revision>; by default the last tag
API ?=
.PHONY: api
api: tools ## the exported API against revision API, by default the last tag: compatible and incompatible changes
	.ci/api $(API)

.PHONY: vuln
vuln: tools ## look for known vulnerabilities in what is called
	.ci/vuln-check
	@.ci/vuln-each . $(published) examples/apps

.PHONY: deps
deps:
	@.ci/install-deps

.PHONY: tools
tools:
	@mkdir -p bin
	@cd test/tools && GOBIN=$(CURDIR)/bin go install tool
