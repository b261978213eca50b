package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// expect finds one finding of a level that holds each text, in what was found or in the advice.
func expect(t *testing.T, r *Report, level Level, check string, texts ...string) {
	t.Helper()
	for _, f := range r.Findings {
		all := f.Subject + " " + f.Found + " " + f.Advice
		good := f.Level == level && f.Check == check && (level == OK) == (f.Advice == "")
		for _, text := range texts {
			good = good && strings.Contains(all, text)
		}
		if good {
			return
		}
	}
	t.Errorf("no %s %s with %q in %+v", level, check, texts, r.Findings)
}

func metrics(t *testing.T, values map[string]float64) *survey.Metrics {
	t.Helper()
	var text strings.Builder
	for name, v := range values {
		fmt.Fprintf(&text, "%s %v\n", name, v)
	}
	m, err := survey.Parse([]byte(text.String()), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sound is a mesh with nothing to say about.
func sound(t *testing.T) []*seen {
	t.Helper()
	const now = 1_795_000_000_000_000
	node := func(tier pushmeshv1.Tier, id string) *seen {
		return &seen{
			node:   &pushmeshv1.Node{Tier: tier, Id: id, Version: "v1.2.3", Clock: now, HeardAt: now, GrpcAddress: "h:1", HttpAddress: "h:2", SubscriberAddress: "h:3"},
			status: 200, lines: []string{"nats: ok", "serving: ok", "ready"},
			metrics: metrics(t, map[string]float64{
				"process_max_fds": 1000, "process_open_fds": 10, "pushmesh_nats_max_payload_bytes": 1 << 20, "pushmesh_nats_servers": 3,
			}),
		}
	}
	return []*seen{
		node(pushmeshv1.Tier_TIER_EDGE, "e1"), node(pushmeshv1.Tier_TIER_ROUTER, "r1"), node(pushmeshv1.Tier_TIER_ROUTER, "r2"),
		node(pushmeshv1.Tier_TIER_COMPUTE, "c1"), node(pushmeshv1.Tier_TIER_STORE, "s1"),
	}
}

// compare runs every check that needs nobody.
func compare(all []*seen) *Report {
	r := &Report{}
	checkReach(r, all)
	checkReady(r, all)
	checkVersions(r, all)
	checkClocks(r, all, 500*time.Millisecond)
	checkFiles(r, all)
	checkNATS(r, all)
	r.conclude()
	return r
}

func TestASoundMesh(t *testing.T) {
	r := compare(sound(t))
	for _, f := range r.Findings {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
	if !r.Sound || len(r.Findings) < 10 {
		t.Errorf("%+v", r)
	}
}

// Each fault is found, alone, with what to do about it.
func TestFaultsOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(all []*seen)
		level Level
		check string
		texts []string
	}{
		"HTTP":      {func(all []*seen) { all[0].http, all[0].metrics = errors.New("refused"), nil }, Fail, "reach", []string{"edge e1", "HTTP: refused", "--http", "h:2"}},
		"gRPC":      {func(all []*seen) { all[1].direct = errors.New("refused") }, Fail, "reach", []string{"router r1", "gRPC is not answered: refused", "--advertise", "h:1"}},
		"handshake": {func(all []*seen) { all[0].direct = errors.New("handshake: OVERLOADED") }, Fail, "reach", []string{"edge e1", "handshake is not answered: handshake: OVERLOADED", "h:3"}},
		"ended": {func(all []*seen) {
			all[4].http, all[4].direct, all[4].metrics = syscall.ECONNREFUSED, status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial: connection refused"`), nil
		}, Fail, "reach", []string{"store s1", "neither HTTP nor gRPC is answered: connection refused; dial: connection refused", "nothing listens at h:1", "start it"}},
		"frozen": {func(all []*seen) {
			all[0].http, all[0].direct, all[0].metrics = context.DeadlineExceeded, fmt.Errorf("handshake: %w", os.ErrDeadlineExceeded), nil
			all[0].node.Problem, all[0].node.Clock = "not heard for 7s", 1
		}, Fail, "reach", []string{"edge e1", "not heard for 7s by the router; neither HTTP nor a subscriber's handshake is answered: no answer in time", "h:3 hangs", "five minutes"}},
		"cut off":      {func(all []*seen) { all[0].node.Problem = "not heard for 7s" }, Fail, "reach", []string{"edge e1", "not heard for 7s by the router; it answers here", "cut off from NATS"}},
		"compute gone": {func(all []*seen) { all[3].node.Problem, all[3].node.HttpAddress = "refused", "" }, Fail, "reach", []string{"compute c1", "--computes"}},
		"no address": {func(all []*seen) {
			all[4].node.HttpAddress, all[4].http, all[4].metrics = "", errors.New("its HTTP address is not known"), nil
		}, Fail, "reach", []string{"store s1", "older"}},
		"not ready": {func(all []*seen) {
			all[4].status, all[4].lines = 503, []string{"postgres: missing: connection refused", "not ready"}
		}, Fail, "ready", []string{"store s1", "postgres: connection refused", "database does not answer"}},
		"a store's clock":          {func(all []*seen) { all[4].lines[0] = "clock: degraded: 1m0s ahead of the database's" }, Warn, "ready", []string{"store s1", "1m0s ahead", "--trust-clock"}},
		"degraded":                 {func(all []*seen) { all[0].lines[0] = "nats: degraded: not connected" }, Warn, "ready", []string{"edge e1", "nats: not connected", "--nats"}},
		"not ready without a word": {func(all []*seen) { all[2].status = 500 }, Fail, "ready", []string{"router r2", "500", "log"}},
		"versions":                 {func(all []*seen) { all[2].node.Version = "v1.3.0" }, Warn, "versions", []string{"v1.2.3: compute c1, edge e1, router r1, store s1; v1.3.0: router r2", "docs/upgrading.md"}},
		"versions of one minor":    {func(all []*seen) { all[2].node.Version = "v1.2.4" }, Warn, "versions", []string{"v1.2.4: router r2", "one minor version apart"}},
		"two minor versions":       {func(all []*seen) { all[2].node.Version = "v1.4.0-rc.1" }, Fail, "versions", []string{"v1.4.0-rc.1: router r2", "more than one minor version", "docs/upgrading.md"}},
		"two of three far apart":   {func(all []*seen) { all[1].node.Version, all[2].node.Version = "v1.1.9", "v1.3.0" }, Fail, "versions", []string{"v1.1.9: router r1", "v1.3.0: router r2"}},
		"major versions":           {func(all []*seen) { all[2].node.Version = "v2.2.3" }, Fail, "versions", []string{"v2.2.3: router r2"}},
		"a build of a commit":      {func(all []*seen) { all[2].node.Version = "0123456789ab" }, Warn, "versions", []string{"0123456789ab: router r2"}},
		"two commits": {func(all []*seen) {
			for _, o := range all {
				o.node.Version = "0123456789ab"
			}
			all[2].node.Version = "0123456789ab+"
		}, Warn, "versions", []string{"0123456789ab+: router r2"}},
		"a version that go made up": {func(all []*seen) { all[2].node.Version = "v0.0.0-20261128074235-0123456789ab" }, Warn, "versions", []string{"0123456789ab: router r2"}},
		"no version":                {func(all []*seen) { all[2].node.Version = "" }, Warn, "versions", []string{"unknown: router r2"}},
		"clock ahead":               {func(all []*seen) { all[0].node.Clock += 700_000 }, Warn, "clock", []string{"edge e1", "700ms ahead of", "chrony"}},
		"clock far behind":          {func(all []*seen) { all[4].node.Clock -= 6_000_000 }, Fail, "clock", []string{"store s1", "6s behind"}},
		"files": {func(all []*seen) {
			all[0].metrics = metrics(t, map[string]float64{"process_max_fds": 1000, "process_open_fds": 850})
			all[0].node.Connections = 800
		}, Warn, "files", []string{"edge e1", "850 of 1000", "LimitNOFILE", "800 now"}},
		"files full": {func(all []*seen) {
			all[4].metrics = metrics(t, map[string]float64{"process_max_fds": 1000, "process_open_fds": 960})
		}, Fail, "files", []string{"store s1", "960 of 1000", "LimitNOFILE"}},
		"max_payload": {func(all []*seen) {
			all[1].metrics = metrics(t, map[string]float64{"pushmesh_nats_max_payload_bytes": 65536, "pushmesh_nats_servers": 3})
		}, Fail, "nats", []string{"router r1", "65536", "max_payload", "1048576"}},
		"one NATS server": {func(all []*seen) {
			all[1].metrics = metrics(t, map[string]float64{"pushmesh_nats_max_payload_bytes": 1 << 20, "pushmesh_nats_servers": 1})
		}, Warn, "nats", []string{"1 of 5", "cluster"}},
	} {
		all := sound(t)
		c.plant(all)
		r := compare(all)
		expect(t, r, c.level, c.check, c.texts...)
		bad := 0
		for _, f := range r.Findings {
			if f.Level != OK {
				bad++
			}
		}
		if bad != 1 || r.Sound != (c.level == Warn) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestMissingTiers(t *testing.T) {
	r := &Report{}
	checkTiers(r, &pushmeshv1.MeshServiceNodesResponse{RouterId: "r1", Nodes: []*pushmeshv1.Node{{Tier: pushmeshv1.Tier_TIER_ROUTER, Id: "r1"}, {Tier: pushmeshv1.Tier_TIER_EDGE, Id: "e1", Problem: "not heard for 7s"}}})
	expect(t, r, Fail, "mesh", "0 edges, 1 router, 0 stores", "--nats")
}

// good are settings that nothing is said about.
func good() *meshv1.InspectedDatabase {
	return &meshv1.InspectedDatabase{
		Name: "home", Kind: "postgres", Connections: 30, StoreConnections: 22, Pooler: meshv1.InspectedDatabase_POOLER_NONE,
		Settings: map[string]string{
			"server_version": "17.2", "synchronous_commit": "on", "fsync": "on", "full_page_writes": "on", "max_connections": "100",
			"superuser_reserved_connections": "3", "min_wal_size": "1GB", "wal_recycle": "on", "autovacuum": "on", "max_locks_per_transaction": "64",
			"max_prepared_transactions": "0", "max_worker_processes": "8", "max_wal_senders": "10", "autovacuum_max_workers": "3",
		},
		Server: &pushmeshv1.DatabaseServer{System: 7, Timeline: 1}, Accepted: &pushmeshv1.DatabaseServer{System: 7, Timeline: 1}, SeesOthers: true, Tables: 100, StoreLocks: 1000,
	}
}

func TestFaultsOfPostgres(t *testing.T) {
	set := func(name, value string) func(*meshv1.InspectedDatabase) {
		return func(db *meshv1.InspectedDatabase) { db.Settings[name] = value }
	}
	for name, c := range map[string]struct {
		plant func(*meshv1.InspectedDatabase)
		level Level
		texts []string
	}{
		"nothing":             {func(*meshv1.InspectedDatabase) {}, OK, []string{"database home", "17.2", "30 connections"}},
		"sqlite":              {func(db *meshv1.InspectedDatabase) { db.Kind = "sqlite" }, OK, []string{"sqlite"}},
		"promoted":            {func(db *meshv1.InspectedDatabase) { db.Server.Timeline = 2 }, Fail, []string{"system 7, timeline 2", "accept-server --same-epoch"}},
		"restored":            {func(db *meshv1.InspectedDatabase) { db.Server.System = 8 }, Fail, []string{"system 8, timeline 1", "--new-epoch"}},
		"untrusted promotion": {func(db *meshv1.InspectedDatabase) { db.Distrust = "synchronous_standby_names is empty" }, Warn, []string{"names is empty", "--trust-promotion"}},
		"ordinary role":       {func(db *meshv1.InspectedDatabase) { db.SeesOthers = false }, OK, []string{"GRANT pg_monitor"}},
		"locks":               {set("max_locks_per_transaction", "10"), Warn, []string{"room for 1230 locks", "need 3124", "26 or more"}},
		"remote_apply":        {set("synchronous_commit", "remote_apply"), OK, nil},
		"synchronous_commit":  {set("synchronous_commit", "off"), Fail, []string{"synchronous_commit is off", "set it to on"}},
		"fsync":               {set("fsync", "off"), Fail, []string{"fsync is off"}},
		"full_page_writes":    {set("full_page_writes", "off"), Fail, []string{"full_page_writes is off", "ZFS"}},
		"allowed":             {func(db *meshv1.InspectedDatabase) { db.NoFsyncAllowed, db.Settings["full_page_writes"] = true, "off" }, Warn, []string{"ZFS"}},
		"max_connections":     {set("max_connections", "47"), Fail, []string{"leaves 44, and stores may open 44", "52 or more", "--db-max-conns"}},
		"connections in use":  {func(db *meshv1.InspectedDatabase) { db.Connections = 90 }, Warn, []string{"90 of 97", "pg_stat_activity"}},
		"pooler in a session": {func(db *meshv1.InspectedDatabase) { db.Pooler = meshv1.InspectedDatabase_POOLER_SESSION }, Warn, []string{"pooler", "session mode"}},
		"long transaction":    {func(db *meshv1.InspectedDatabase) { db.OldestTransactionS = 3600 }, Warn, []string{"60 minutes", "idle_in_transaction_session_timeout"}},
		"min_wal_size":        {set("min_wal_size", "80MB"), Warn, []string{"min_wal_size is 80MB", "1GB"}},
		"wal_recycle":         {set("wal_recycle", "off"), Warn, []string{"wal_recycle is off"}},
		"autovacuum":          {set("autovacuum", "off"), Warn, []string{"autovacuum is off"}},
		"away": {func(db *meshv1.InspectedDatabase) {
			*db = meshv1.InspectedDatabase{Name: "home", Kind: "postgres", Problem: "connection refused"}
		}, Fail, []string{"store s1 database home", "connection refused", "--db"}},
	} {
		// Two stores share the database: it is judged once, their connections together.
		first, second := good(), good()
		c.plant(first)
		second.Settings = maps.Clone(first.Settings)
		if first.Problem != "" {
			second = first
		}
		r := &Report{}
		checkPostgres(r, []inspected{{store: "store s1", databases: []*meshv1.InspectedDatabase{first}}, {store: "store s2", databases: []*meshv1.InspectedDatabase{second}}})
		expect(t, r, c.level, "postgres", c.texts...)
		if n := len(r.Findings); n != 1 && first.Problem == "" {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
	r := &Report{}
	pooled := good()
	pooled.Pooler = meshv1.InspectedDatabase_POOLER_TRANSACTION
	checkPostgres(r, []inspected{
		{store: "store s1", databases: []*meshv1.InspectedDatabase{good()}},
		{store: "store s2", databases: []*meshv1.InspectedDatabase{pooled}},
		{store: "store s3", err: errors.New("unimplemented")},
	})
	expect(t, r, Fail, "postgres", "store s2", "transaction mode", "pool_mode = session")
	expect(t, r, Fail, "postgres", "store s3", "unimplemented", "upgrade")
}

func TestAmounts(t *testing.T) {
	for s, want := range map[string]float64{"80MB": 80 << 20, "1GB": 1 << 30, "512kB": 512 << 10, "2TB": 2 << 40, "x": 0, "": 0, "xMB": 0} {
		if got, ok := amount(s); got != want || ok != (want > 0) {
			t.Errorf("%q: %v %v", s, got, ok)
		}
	}
}

func TestPrint(t *testing.T) {
	r := &Report{}
	r.ok("mesh", "nodes", "fine")
	r.add(Warn, "clock", "edge e1", "late", "wind it up")
	r.add(Fail, "reach", "router r1", "refused\nby all", "start it")
	r.conclude()
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "fail  reach  router r1  refused by all\n      -> start it\nwarn  clock  edge e1  late\n      -> wind it up\nok  mesh  nodes  fine\n1 ok, 1 to look at, 1 failed\n"
	if out.String() != want || r.Sound {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
