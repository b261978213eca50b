# `make help` lists what there is. Each target is a script of its own or a line; tools and versions are pinned under tools/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := bin
DATA ?= data
SAMPLE := deploy/sample/rooms.jsonl.gz
# Plain, so that tests and linters share the compiled packages; images get static binaries.
BUILD := go build

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: build
build: ## build every binary into bin/
	$(BUILD) -o $(BIN)/ ./cmd/pushmesh ./services/edge/cmd/edge ./services/router/cmd/router ./services/compute/cmd/compute ./services/store/cmd/store

.PHONY: images-bin
images-bin:
	@$(MAKE) --no-print-directory pushmesh BUILD="CGO_ENABLED=0 go build -trimpath"
	GOWORK=off CGO_ENABLED=0 go build -C tools/nats-server -trimpath -o $(abspath $(BIN))/nats-server github.com/nats-io/nats-server/v2

.PHONY: pushmesh
pushmesh:
	$(BUILD) -o $(BIN)/ ./cmd/pushmesh

.PHONY: run
run: pushmesh ## a whole mesh in one process, with a chat sample replayed through it; stays up
	$(BIN)/pushmesh dev --data $(DATA) --replay $(SAMPLE)

.PHONY: smoke
smoke: pushmesh ## the same on free ports and a scratch folder, ending after the replay
	@scripts/smoke

.PHONY: test
test: ## every test with the race detector, against private servers; installs what is missing
	@scripts/test

.PHONY: test-postgres
test-postgres: ## conformance of the store on each supported version of Postgres: as a granted role, as an owner, through PgBouncer; VERSIONS="15 18", RACE=no
	@scripts/test-postgres $(VERSIONS)

.PHONY: chaos
chaos: ## publish and subscribe for FOR=5m while every process suffers faults at random, then judge the promises; TOPICS=100000 beside; SEED=N repeats; JSON=FILE; POOLER=session, PUBLICATION=yes
	@scripts/chaos

.PHONY: upgrade-check
upgrade-check: ## upgrade a mesh from the last release and go back, under traffic with kills, in all 24 orders of the tiers or what begins within FOR=10m; SEED=N repeats
	@scripts/setup test
	PUSHMESH_ROLLING_FOR=$(or $(FOR),24h) PUSHMESH_ROLLING_SEED=$(SEED) scripts/with-servers go test -count=1 -timeout 24h -v -run AMeshIsUpgraded ./test/rolling

.PHONY: runbooks
runbooks: ## try the runbooks of docs/postgres.md, as they stand there: promotion, restore, upgrade, full disk, credentials, long transaction
	@scripts/setup test
	@scripts/runbooks

.PHONY: claims-check
claims-check: ## claim resources for FOR=5m while processes are killed and frozen at random, then judge whether it could have happened; SEED=N repeats; POOLER=session, PUBLICATION=yes
	@scripts/setup test
	bin=$$(scripts/postgres bin) && cd test && PUSHMESH_TEST_POSTGRES_BIN=$$bin PUSHMESH_CHAOS_POOLER=$(POOLER) PUSHMESH_CHAOS_PUBLICATION=$(PUBLICATION) PUSHMESH_CHAOS_FOR=$(or $(FOR),5m) PUSHMESH_CHAOS_SEED=$(SEED) go test -count=1 -timeout 24h -v -run WhateverDies ./claims

.PHONY: websocket-proxies
websocket-proxies: ## silent WebSockets behind nginx and HAProxy, which cut them off after 60 s, for FOR=5m
	@scripts/setup test
	cd test && PUSHMESH_WEBSOCKET_FOR=$(or $(FOR),5m) go test -count=1 -timeout 24h -parallel 4 -v -run Proxies ./websocket

.PHONY: browser-test
browser-test: ## Debian's Chromium: a tab that is hidden for HIDDEN=10m, offline and online, 10,000 messages through reloads; the TypeScript client in pages and a SharedWorker; the playground
	@scripts/setup test
	@scripts/setup browser
	@scripts/clients-js build
	cd test && PUSHMESH_BROWSER_HIDDEN=$(HIDDEN) go test -tags browser -count=1 -timeout 24h -v ./websocket/browser

.PHONY: playground
playground: ## build the page that pushmesh dev serves, of cmd/pushmesh/internal/playground/web; its build is committed
	@scripts/playground

.PHONY: playground-pictures
playground-pictures: ## take the pictures of docs/images anew, in Debian's Chromium
	@scripts/setup test
	@scripts/setup browser
	cd test && PUSHMESH_BROWSER_PICTURES=$(CURDIR)/docs/images go test -tags browser -count=1 -v -run TestPictures ./websocket/browser

.PHONY: failures
failures: ## play every fault against a mesh under traffic and print what each cost; RUNS=3, ONLY=a,b, JSON=FILE
	@scripts/failures

.PHONY: siege
siege: build ## attack a mesh while its well-behaved users are measured, and print who paid; SPAN=15s, ONLY=a,b, WITHIN=20m, JSON=FILE
	@scripts/siege

.PHONY: fuzz
fuzz: ## every fuzz target, TIME=5000x (inputs) or 30s each
	@scripts/fuzz $(or $(TIME),5000x)

.PHONY: mutate
mutate: ## what the tests of a package notice: PKG="a b", N=200 small faults of each, SEED=1; GOAL=90, JSON=FILE
	@scripts/mutate $(PKG)

.PHONY: lint
lint: ## linters, schemas, generated code, go.mod files
	@scripts/lint

.PHONY: generate
generate: ## generate Go code from proto/
	@scripts/generate

.PHONY: mesh
mesh: build ## a mesh of separate processes on loopback with a real nats-server and Postgres; Ctrl-C ends it
	@scripts/setup test
	@exec $(BIN)/pushmesh mesh --bin $(BIN) --nats-server "$$(scripts/tool nats-server)" $(MESH_ARGS)

.PHONY: compose-test
compose-test: ## deploy/compose on a real Docker engine: up, used, scaled, down; FAULTS=1, BACKUP=1 (MESSAGES=20000); needs root
	@scripts/compose-test

.PHONY: helm-test
helm-test: ## the Helm chart: lint, values, and every manifest before a real kube-apiserver (built once, in some 15 minutes)
	@scripts/helm-test

.PHONY: kube-test
kube-test: ## the Helm chart on a Kubernetes of one node: installed, rolled out, drained and killed under traffic; needs root; built once, in half an hour
	@scripts/kube-test

.PHONY: release
release: ## everything of a release in dist/: VERSION=v1.2.3; TARGETS, OUT, DIRTY=1
	@scripts/setup release
	@scripts/release $(VERSION)

.PHONY: release-test
release-test: ## a release made twice and compared, and installed in each way from nothing; needs root
	@scripts/release-test

# Benchmarks by name; bench-NAME is the same as bench PART=NAME.
BENCHES := auth edge edge-guard store store-long router pool compute compute-long claims claims-long million upgrade websocket

.PHONY: bench
bench: build ## measure PART=NAME of auth, edge, edge-guard, router, pool, store, compute, claims (the last three as store-long, too), million, upgrade, websocket; JSON=FILE, PROFILE=FOLDER, CONNS=N, ARGS=FLAGS
	@scripts/bench $(PART)

.PHONY: $(BENCHES:%=bench-%)
$(BENCHES:%=bench-%): bench-%: build
	@scripts/bench $*

.PHONY: clean
clean: ## remove what was built; data/ stays
	rm -rf $(BIN)
