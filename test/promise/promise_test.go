package promise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	if err := report.write(os.Stdout, os.Getenv("PUSHMESH_CHAOS_JSON")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// seed of the run, printed; PUSHMESH_CHAOS_SEED repeats one.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixMicro())
	if s := os.Getenv("PUSHMESH_CHAOS_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PUSHMESH_CHAOS_SEED=%d", n)
	return n
}

// clocksAreSet reports whether wall clocks are set in a run, PUSHMESH_CHAOS_CLOCKS=yes: binaries
// for that are minutes of compiling.
func clocksAreSet(t *testing.T) bool {
	t.Helper()
	return yes(t, "PUSHMESH_CHAOS_CLOCKS")
}

// length of a run, a duration; PUSHMESH_CHAOS_FOR is that of the main one.
func length(t *testing.T, variable string) time.Duration {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}

// victims are all processes of a mesh but compute, which no message here meets. Each can be killed;
// each may also hang for a while (SIGSTOP) and go on without knowing what happened meanwhile.
func victims(m *procmesh.Mesh, db *pgserver.Server) []Victim {
	// who was killed can't be frozen
	frozen := func(do func() error) func() error { return func() error { _ = do(); return nil } }
	all := []Victim{
		{Name: "postgres", Kind: Kill, Strike: db.Kill, Back: db.Restart},
		{Name: "postgres frozen", Kind: Freeze, Strike: frozen(db.Pause), Back: frozen(db.Resume)},
	}
	for _, p := range slices.Concat(m.NATSs, m.Stores, m.Routers, m.Edges) {
		signal := func(sig os.Signal) func() error { return func() error { p.Signal(sig); return nil } }
		all = append(all,
			Victim{Name: p.Name, Kind: Kill, Strike: func() error { p.Kill(); return nil }, Back: p.Start, Parts: []string{p.Name}},
			Victim{Name: p.Name + " frozen", Kind: Freeze, Strike: signal(syscall.SIGSTOP), Back: signal(syscall.SIGCONT)})
	}
	return append(all, alone(m, m.Routers[0]), alone(m, m.Edges[0]))
}

// alone has a process begin again while no store is there, and nobody else who could tell it what
// it needs: the stores, all edges and all routers are killed, and it comes back first.
func alone(m *procmesh.Mesh, first *procmesh.Process) Victim {
	others := slices.DeleteFunc(slices.Concat(m.Stores, m.Routers, m.Edges), func(p *procmesh.Process) bool { return p == first })
	v := Victim{Name: first.Name + " alone", Kind: Alone, Parts: []string{first.Name}}
	for _, p := range others {
		v.Parts = append(v.Parts, p.Name)
	}
	v.Strike = func() error {
		for _, p := range append(others, first) {
			p.Kill()
		}
		return nil
	}
	v.Back = func() error {
		err := first.Start()
		<-time.After(aloneFor)
		for _, p := range others {
			err = errors.Join(err, p.Start())
		}
		return err
	}
	return v
}

// aloneFor is long enough for clients to find the process that came back first.
const aloneFor = 2 * time.Second

// Stores, the database, routers, edges and NATS are killed with SIGKILL or frozen at random while
// everything goes on; NATS is split, statements are slow or fail, and clocks are set; afterwards
// every promise has been kept.
func TestPromisesAreKeptWhateverDies(t *testing.T) {
	n := seed(t)
	db, url := Postgres(t)
	ways, urls := databases(t, url, 2)
	m := procmesh.Start(t, procmesh.Options{Edges: 3, Routers: 2, Stores: 2, DBs: urls, StoreArgs: forced, Halves: true, Clocks: clocksAreSet(t)})
	all := append(victims(m, db), splits(m, n)...)
	for _, way := range ways {
		all = append(all, way.victims()...)
	}
	if clocksAreSet(t) {
		clocksBite(t, m)
		all = append(all, clocks(m)...)
	}
	faults := &Faults{Victims: all, Every: 700 * time.Millisecond, Down: 1500 * time.Millisecond, Rand: rand.New(rand.NewPCG(n, 0))}
	play := &Play{Routers: m.RouterAddrs, Edges: m.EdgeAddrs, Seed: n, Logf: t.Logf, Known: m.KnowNamespaces, Killed: m.EdgesKilled, Groups: m.Groups, Rate: 400, Lives: 4 * time.Second}
	v := judged(t, play, func(ctx context.Context) {
		crowded(t, play, func() {
			const most = 10 // a busy machine has less happen in the same time
			for try := range most {
				strike(ctx, t, faults, length(t, "PUSHMESH_CHAOS_FOR"))
				if _, n := play.Offered(); faults.Total() >= 5 && n >= 1000 {
					break
				}
				t.Logf("too little has happened in %d times %s", try+1, length(t, "PUSHMESH_CHAOS_FOR"))
			}
			for _, v := range []Victim{alone(m, m.Routers[0]), alone(m, m.Edges[0])} {
				// whatever chance has struck
				m.WaitReady(t)
				if err := faults.Strike(v); err != nil {
					t.Fatal(err)
				}
			}
			m.WaitReady(t)
		})
	})
	t.Logf("faults=%d %v", faults.Total(), faults.Struck)
	t.Log(v)
	report.add("whatever dies", n, faults, v)
	for _, b := range v.Breaches {
		t.Error(b)
	}
	agree(t, m)
	if faults.Total() < 5 || v.Answered < 1000 {
		t.Errorf("too little happened: %d faults, %d messages answered", faults.Total(), v.Answered)
	}
}

// agree waits until no dispatcher has a member that its edge has not.
func agree(t *testing.T, m *procmesh.Mesh) {
	t.Helper()
	var last error
	defer func() {
		if last != nil {
			t.Logf("%v\n%s", last, m.Groups(t.Context()))
		}
	}()
	procmesh.Await(t, "dispatchers and edges have the same members", func() bool {
		last = m.GroupsAgree(t.Context())
		return last == nil
	})
}

// strike has faults for so long.
func strike(ctx context.Context, t *testing.T, f *Faults, long time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// judged plays while during does what it does to the mesh, and judges.
func judged(t *testing.T, p *Play, during func(context.Context)) *Verdict {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	during(t.Context())
	h, err := p.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Judge(h)
}
