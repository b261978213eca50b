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
	@$(MAKE) --no-print-directory build BUILD="CGO_ENABLED=0 go build -trimpath"
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

.PHONY: chaos
chaos: ## publish and subscribe for FOR=5m while every process suffers faults at random, then judge the promises; TOPICS=100000 beside; SEED=N repeats; JSON=FILE
	@scripts/chaos

.PHONY: claims-check
claims-check: ## claim resources for FOR=5m while processes are killed and frozen at random, then judge whether it could have happened; SEED=N repeats
	@scripts/setup test
	cd test && PUSHMESH_CHAOS_FOR=$(or $(FOR),5m) PUSHMESH_CHAOS_SEED=$(SEED) go test -count=1 -timeout 24h -v -run WhateverDies ./claims

.PHONY: failures
failures: ## play every fault against a mesh under traffic and print what each cost; RUNS=3, ONLY=a,b, JSON=FILE
	@scripts/failures

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
compose-test: ## deploy/compose on a real Docker engine, up and down; needs root
	@scripts/compose-test

.PHONY: bench-edge
bench-edge: build ## the edge beside bare loops in C, Redis, Mosquitto and NATS, within 10 minutes; JSON=FILE, PROFILE=FOLDER
	@scripts/bench-edge

.PHONY: bench-edge-guard
bench-edge-guard: build ## what guards an edge against its clients: stall, catchup, tls, tls-flood, drain (ARGS='-only NAME'); 7 minutes; JSON=FILE
	@scripts/bench-edge-guard

.PHONY: bench-store
bench-store: build ## the durable log beside bare programs on the same Postgres, within 8 minutes; JSON=FILE, PROFILE=FOLDER
	@scripts/bench-store

.PHONY: bench-store-long
bench-store-long: build ## append rate and read latency with 1, 10 and 100 million messages stored; within 20 minutes, 53 GB of disk
	@scripts/bench-store -long -timeout 40m

.PHONY: bench-router
bench-router: build ## routers and NATS between producers and edges, beside nats-server alone, within 10 minutes; JSON=FILE, PROFILE=FOLDER
	@scripts/bench-router

.PHONY: bench-pool
bench-pool: build ## the store's pool: sizes, the adaptive limit, readers beside appends, Postgres in trouble; 5 minutes; JSON=FILE
	@scripts/bench-pool

.PHONY: bench-compute
bench-compute: build ## ranking beside C and cel-go, over the wire, in the pool, and beside an edge, within 10 minutes; JSON=FILE, PROFILE=FOLDER
	@scripts/bench-compute

.PHONY: bench-compute-long
bench-compute-long: build ## the same with longer rounds and more of them, within 25 minutes
	@scripts/bench-compute -rounds 9 -span 2s -mix-rounds 5 -mix-span 20s -isolate-rounds 6 -timeout 25m

.PHONY: bench-claims
bench-claims: build ## exclusive resources over gRPC and TCP, beside etcd's locks, within 10 minutes; JSON=FILE, PROFILE=FOLDER
	@scripts/bench-claims

.PHONY: bench-claims-long
bench-claims-long: build ## the same with rounds of a minute beside resources held, and 100,000 waiting; within 30 minutes
	@scripts/bench-claims -span 60s -waiting 90000 -timeout 30m

.PHONY: bench-million
bench-million: build ## a million connections on this machine (18 GiB free), a broadcast and 1,000 unicasts; JSON=FILE, CONNS=N
	@scripts/bench-million

.PHONY: clean
clean: ## remove what was built; data/ stays
	rm -rf $(BIN)
