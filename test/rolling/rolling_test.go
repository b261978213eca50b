package rolling

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/promise"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

const (
	// patience bounds what must happen; a busy machine is no failure.
	patience = 2 * time.Minute
	// deadlockDetected is what Postgres says of the transaction that it ends.
	deadlockDetected = "40P01"
	// rate of each of the play's three publishers, in messages a second.
	rate = 400
)

// tiers of a mesh.
var tiers = []string{"store", "router", "edge", "compute"}

// patient nodes stop as planned on a busy machine, too.
var patient = []string{"--grace", "60s"}

// seed of the run, printed; PUSHMESH_ROLLING_SEED repeats one.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixMicro())
	if s := os.Getenv("PUSHMESH_ROLLING_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PUSHMESH_ROLLING_SEED=%d", n)
	return n
}

// mesh of which each process runs one of two versions.
type mesh struct {
	*procmesh.Mesh
	t    *testing.T
	rand *rand.Rand
	runs map[*procmesh.Process]string // the version of each, for the log
	// steps are planned stops that were followed by a start, kills those of random processes.
	steps, kills int
}

// change has one process stop as planned and start again from that binary.
func (m *mesh) change(p *procmesh.Process, version, pushmesh string) {
	m.t.Helper()
	began := time.Now()
	if err := p.Stop(patience); err != nil {
		m.t.Fatal(err)
	}
	stopped := time.Since(began)
	m.RunFrom(pushmesh, p)
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.WaitReady(m.t)
	m.runs[p] = version
	m.steps++
	m.t.Logf("%s is %s now: stopped within %s, all ready %s later", p.Name, version, stopped.Round(time.Millisecond), (time.Since(began) - stopped).Round(time.Millisecond))
}

// kill a random process, whichever version it runs, and start it again.
func (m *mesh) kill() {
	m.t.Helper()
	all := m.Tiers()
	p := all[m.rand.IntN(len(all))]
	p.Kill()
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.WaitReady(m.t)
	m.kills++
	m.t.Logf("%s was killed, and is %s again", p.Name, m.runs[p])
}

// tier's processes, in a random order.
func (m *mesh) tier(name string) (all []*procmesh.Process) {
	for _, p := range m.Tiers() {
		if strings.HasPrefix(p.Name, name+"-") {
			all = append(all, p)
		}
	}
	m.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// roll every tier over in that order, node by node, with a kill in each tier, half way: its nodes
// run both versions then.
func (m *mesh) roll(order []string, version, pushmesh string) {
	m.t.Helper()
	m.t.Logf("to %s: %s", version, strings.Join(order, ", "))
	for _, tier := range order {
		for i, p := range m.tier(tier) {
			m.change(p, version, pushmesh)
			if i == 0 {
				m.warns()
				m.kill()
			}
		}
	}
}

// intoTheFuture makes the schema one of a version that nobody has, while stores run, as a store of
// that version would at its start: each table has one column more, and there is another table, and
// a step that nobody knows.
func (m *mesh) intoTheFuture(url string) {
	m.t.Helper()
	conn, err := pgx.Connect(m.t.Context(), url)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = conn.Close(m.t.Context()) }()
	rows, err := conn.Query(m.t.Context(), `
		SELECT format('ALTER TABLE IF EXISTS %s ADD COLUMN of_the_future bigint NOT NULL DEFAULT 7', oid::regclass)
		FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname`)
	if err != nil {
		m.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(all) < 10 {
		m.t.Fatalf("%d tables: %v", len(all), err)
	}
	all = append(all, `CREATE TABLE pushmesh.of_the_future (id int PRIMARY KEY, what text NOT NULL)`,
		`INSERT INTO pushmesh.of_the_future VALUES (1, 'x')`, `INSERT INTO pushmesh_migration (version_id, is_applied) VALUES (99999, true)`)
	for _, sql := range all {
		procmesh.Await(m.t, sql, func() bool {
			_, err := conn.Exec(m.t.Context(), sql)
			if deadlock, ok := errors.AsType[*pgconn.PgError](err); ok && deadlock.Code == deadlockDetected {
				return false // with a store's transaction: either gives way
			}
			if err != nil {
				m.t.Fatalf("%s: %v", sql, err)
			}
			return true
		})
	}
	m.WaitReady(m.t)
	m.t.Logf("the schema is of a later version: %d statements", len(all))
}

// A mesh is upgraded from the last release tier by tier and node by node, in an order, goes on with
// a schema of a version still to come, and goes back in another order, while messages flow and
// processes of either version are killed: every promise is kept.
func TestAMeshIsUpgradedAndGoesBack(t *testing.T) {
	old, have := binary(t)
	if !have {
		return
	}
	n := seed(t)
	rnd := rand.New(rand.NewPCG(n, 0)) // #nosec G404 -- repeatable
	all := permutations(tiers)
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	ups := [][]string{{"store", "router", "edge", "compute"}, {"edge", "compute", "router", "store"}}
	long := length(t)
	if long > 0 {
		ups = all
		t.Logf("every order of the tiers, or as many as begin within %s", long)
	}
	began := time.Now()
	for i, up := range ups {
		if long > 0 && time.Since(began) > long {
			break
		}
		at := uint64(i) // #nosec G115 -- small
		t.Run(strings.Join(up, "-"), func(t *testing.T) {
			// #nosec G404 -- repeatable
			plays(t, old, n+at, rand.New(rand.NewPCG(n, at+1)), up, all[len(all)-1-i])
		})
	}
}

// length of a run that tries all orders; 0: two are enough.
func length(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("PUSHMESH_ROLLING_FOR")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("PUSHMESH_ROLLING_FOR: %v", err)
	}
	return d
}

// permutations of names.
func permutations(names []string) (all [][]string) {
	if len(names) == 0 {
		return [][]string{nil}
	}
	for i, first := range names {
		for _, others := range permutations(slices.Delete(slices.Clone(names), i, i+1)) {
			all = append(all, append([]string{first}, others...))
		}
	}
	return all
}

// plays one upgrade and the way back under traffic, and judges.
func plays(t *testing.T, old string, n uint64, rnd *rand.Rand, up, down []string) {
	url := pgtest.URL(t)
	was := last(t).version
	m := &mesh{
		Mesh: procmesh.Start(t, procmesh.Options{Edges: 2, Routers: 2, Stores: 2, DB: url, From: old, StoreArgs: patient, RouterArgs: patient, EdgeArgs: patient}),
		t:    t, rand: rnd, runs: map[*procmesh.Process]string{},
	}
	for _, p := range m.Tiers() {
		m.runs[p] = was
	}
	play := &promise.Play{Routers: m.RouterAddrs, Edges: m.EdgeAddrs, Seed: n, Logf: t.Logf, Known: m.KnowNamespaces, Killed: m.EdgesKilled, Groups: m.Groups, Rate: rate, Lives: 4 * time.Second}
	if err := play.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.roll(up, "this version", m.Pushmesh)
	m.intoTheFuture(url)
	// it starts on it, too
	m.change(m.Stores[m.rand.IntN(len(m.Stores))], "this version", m.Pushmesh)
	m.roll(down, was, old)
	offered, _ := play.Offered()
	h, err := play.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := promise.Judge(h)
	t.Logf("%d planned stops, %d kills, %d messages offered: %s", m.steps, m.kills, offered, v)
	for _, b := range v.Breaches {
		t.Error(b)
	}
	if nodes := len(m.Tiers()); m.steps != 2*nodes+1 || m.kills != 2*len(tiers) || v.Answered < 1000 {
		t.Errorf("too little happened: %d planned stops, %d kills, %d messages answered", m.steps, m.kills, v.Answered)
	}
}

// warns checks that doctor warns of versions while there are two.
func (m *mesh) warns() {
	m.t.Helper()
	versions := map[string]bool{}
	for _, version := range m.runs {
		versions[version] = true
	}
	// #nosec G204 -- ours
	said, err := exec.CommandContext(m.t.Context(), m.Pushmesh, "doctor", "--router", m.RouterAddrs[0], "--skew", "1h", "--patience", "1m", "--no-probe").CombinedOutput()
	// what else it finds on a busy machine is not asked
	told := regexp.MustCompile(`(?m)^ok +versions`)
	if len(versions) > 1 {
		told = regexp.MustCompile(`(?m)^warn +versions`)
	}
	if !told.Match(said) || strings.Contains(string(said), "docs/upgrading.md") != (len(versions) > 1) {
		m.t.Errorf("with %d versions, doctor says (%v)\n%s", len(versions), err, said)
	}
}

// An older store is broken by a step that takes away what it uses, and that is noticed: upgrades
// that keep their promises prove something.
func TestAStepThatTakesAwayBreaksOlderStores(t *testing.T) {
	t.Parallel()
	old, have := binary(t)
	if !have {
		return
	}
	url := pgtest.URL(t)
	m := procmesh.Start(t, procmesh.Options{DB: url, From: old})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	n := 0
	publish := func() error {
		n++
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/1", Payload: []byte("x"), DedupeKey: strconv.Itoa(n)})
		return err
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, `ALTER TABLE pushmesh.batch RENAME TO batch_of_the_future`)
	if err := publish(); err == nil {
		t.Error("a store that lacks a table stores all the same")
	}
}
