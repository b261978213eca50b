package promise

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
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

// length of the run; PUSHMESH_CHAOS_FOR is a duration.
func length(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("PUSHMESH_CHAOS_FOR")
	if s == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// victims are all processes of a mesh but compute, which no message here meets. Each can be killed; each may also hang for a while
// (SIGSTOP) and go on without knowing what happened meanwhile.
func victims(m *procmesh.Mesh, db *pgtest.Server) []Victim {
	frozen := func(do func() error) func() error { return func() error { _ = do(); return nil } } // who was killed can't be frozen
	all := []Victim{{Name: "postgres", Strike: db.Kill, Back: db.Restart}, {Name: "postgres frozen", Strike: frozen(db.Pause), Back: frozen(db.Resume)}}
	for _, p := range slices.Concat([]*procmesh.Process{m.NATS}, m.Stores, m.Routers, m.Edges) {
		signal := func(sig os.Signal) func() error { return func() error { p.Signal(sig); return nil } }
		all = append(all,
			Victim{Name: p.Name, Strike: func() error { p.Kill(); return nil }, Back: p.Start, Parts: []string{p.Name}},
			Victim{Name: p.Name + " frozen", Strike: signal(syscall.SIGSTOP), Back: signal(syscall.SIGCONT)})
	}
	return append(all, alone(m, m.Routers[0]), alone(m, m.Edges[0]))
}

// alone has a process begin again while no store is there, and nobody else who could tell it what it needs: the stores, all edges and all routers are killed,
// and it comes back first.
func alone(m *procmesh.Mesh, first *procmesh.Process) Victim {
	others := slices.DeleteFunc(slices.Concat(m.Stores, m.Routers, m.Edges), func(p *procmesh.Process) bool { return p == first })
	v := Victim{Name: first.Name + " alone", Parts: []string{first.Name}}
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

// Stores, the database, routers, edges and NATS are killed with SIGKILL or frozen at random while everything goes on; afterwards every
// promise has been kept.
func TestPromisesAreKeptWhateverDies(t *testing.T) {
	n := seed(t)
	db := pgtest.New(t)
	m := procmesh.Start(t, procmesh.Options{Edges: 3, Routers: 2, Stores: 2, DB: db.URL(), StoreArgs: forced})
	faults := &Faults{Victims: victims(m, db), Every: 700 * time.Millisecond, Down: 1500 * time.Millisecond, Rand: rand.New(rand.NewPCG(n, 0))}
	play := &Play{Routers: m.RouterAddrs, Edges: m.EdgeAddrs, Seed: n, Logf: t.Logf, Known: m.KnowNamespaces, Rate: 400, Lives: 4 * time.Second}
	v := judged(t, play, func(ctx context.Context) {
		crowded(t, play, func() {
			const most = 10 // a busy machine has less happen in the same time
			for try := range most {
				strike(ctx, t, faults, length(t))
				if _, n := play.Offered(); faults.Total() >= 5 && n >= 1000 {
					break
				}
				t.Logf("too little has happened in %d times %s", try+1, length(t))
			}
			for _, v := range []Victim{alone(m, m.Routers[0]), alone(m, m.Edges[0])} { // whatever chance has struck
				m.WaitReady(t)
				if err := errors.Join(v.Strike(), v.Back()); err != nil {
					t.Fatal(err)
				}
			}
			m.WaitReady(t)
		})
	})
	t.Logf("faults=%d %v", faults.Total(), faults.Struck)
	t.Log(v)
	for _, b := range v.Breaches {
		t.Error(b)
	}
	if faults.Total() < 5 || v.Answered < 1000 {
		t.Errorf("too little happened: %d faults, %d messages answered", faults.Total(), v.Answered)
	}
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
