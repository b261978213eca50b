package claims

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/promise"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// chaosSeed of the run, printed; PUSHMESH_CHAOS_SEED repeats one.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixMicro()) // #nosec G115 -- after 1970
	if s := os.Getenv("PUSHMESH_CHAOS_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PUSHMESH_CHAOS_SEED=%d", n)
	return n
}

// chaosFor is how long processes die; PUSHMESH_CHAOS_FOR says otherwise.
func chaosFor(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv("PUSHMESH_CHAOS_FOR")
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// victims are the stores, the routers and the database, each killed, or frozen for a while without
// a notion of it.
func victims(m *procmesh.Mesh, db *pgserver.Server) []promise.Victim {
	// who was killed can't be frozen
	frozen := func(do func() error) func() error { return func() error { _ = do(); return nil } }
	all := []promise.Victim{{Name: "postgres", Strike: db.Kill, Back: db.Restart}, {Name: "postgres frozen", Strike: frozen(db.Pause), Back: frozen(db.Resume)}}
	for _, p := range slices.Concat(m.Stores, m.Routers) {
		signal := func(sig os.Signal) func() error { return func() error { p.Signal(sig); return nil } }
		all = append(all,
			promise.Victim{Name: p.Name, Strike: func() error { p.Kill(); return nil }, Back: p.Start},
			promise.Victim{Name: p.Name + " frozen", Strike: signal(syscall.SIGSTOP), Back: signal(syscall.SIGCONT)})
	}
	return all
}

// namespace puts a policy of claims, as soon as a router takes it.
func namespace(t *testing.T, m *procmesh.Mesh, prefix string, p *pushmeshv1.ClaimPolicy) {
	t.Helper()
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	procmesh.Await(t, "the namespace is put", func() bool {
		_, err = pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Claims: p}},
		})
		return err == nil
	})
}

// spread waits until every store goes by the rules of a namespace: at resources of many shards, as
// many may hold as it says, for so long.
func spread(t *testing.T, api pushmeshv1.ClaimServiceClient, prefix string, r Rules, ttl time.Duration) {
	t.Helper()
	for i := range 16 {
		resource := fmt.Sprintf("%s/probe-%d", prefix, i)
		procmesh.Await(t, prefix+": the policy is known", func() bool {
			for j := range r.Holders {
				owner := fmt.Sprintf("probe-%d", j)
				res, err := api.Acquire(t.Context(), &pushmeshv1.AcquireRequest{Resource: resource, Owner: owner})
				st := res.GetState()
				if err != nil || st.GetState() != wirev1.ClaimState_STATE_GRANTED {
					return false
				}
				if left := time.Duration(st.GetExpiresInMs()) * time.Millisecond; left > ttl || left < ttl-time.Second {
					_, _ = api.Release(t.Context(), &pushmeshv1.ReleaseRequest{Resource: resource, Owner: owner, Token: st.GetToken()})
					return false
				}
			}
			return true
		})
	}
}

// policy by which holds, waits and offers last so long.
func policy(holders int, ttl, wait, offer time.Duration) *pushmeshv1.ClaimPolicy {
	return &pushmeshv1.ClaimPolicy{
		// #nosec G115 -- 1 or 3
		Holders: uint32(holders), Ttl: durationpb.New(ttl), WaitTtl: durationpb.New(wait), OfferTtl: durationpb.New(offer),
	}
}

// rulesOf the namespaces of this test.
var rulesOf = map[string]Rules{
	"lock":  {Holders: 1},
	"pool":  {Holders: 3},
	"lease": {Holders: 1, TTL: 1500 * time.Millisecond, WaitTTL: 2 * time.Second, OfferTTL: time.Second, Early: 100 * time.Millisecond, Late: 3 * time.Second},
}

// Stores, routers and the database are killed with SIGKILL or frozen at random while many owners
// claim: each resource behaved as one line and one set of holders that every operation met at some
// moment between its call and its answer.
func TestClaimsAreOneWhateverDies(t *testing.T) {
	t.Parallel()
	n := chaosSeed(t)
	db, url := promise.Postgres(t)
	m := procmesh.Start(t, procmesh.Options{Routers: 2, Stores: 2, DB: url})
	apis, err := Dial(m.RouterAddrs...)
	if err != nil {
		t.Fatal(err)
	}
	for prefix, r := range rulesOf {
		if r.TTL == 0 {
			// longer than any history
			r.TTL, r.WaitTTL, r.OfferTTL = time.Hour, time.Hour, time.Hour
		}
		namespace(t, m, prefix, policy(r.Holders, r.TTL, r.WaitTTL, r.OfferTTL))
		spread(t, apis[0], prefix, r, r.TTL)
	}
	var crowds []*Crowd
	for prefix, r := range rulesOf {
		crowds = append(crowds, &Crowd{
			APIs: apis, Prefix: prefix, Desks: 4, Owners: 5, Pause: 10 * time.Millisecond, Absence: 2 * r.TTL, Watches: true, Seed: n, History: NewHistory(),
		})
	}
	// #nosec G404 -- repeatable
	faults := &promise.Faults{Victims: victims(m, db), Every: time.Second, Down: 1500 * time.Millisecond, Rand: rand.New(rand.NewPCG(n, 0))}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var running sync.WaitGroup
	for _, c := range crowds {
		running.Go(func() { c.Run(ctx) })
	}
	goOn(t, crowds)
	t.Log("all claim")
	for faults.Total() < 3 { // a busy machine has less happen in the same time
		striking, enough := context.WithTimeout(ctx, chaosFor(t, 5*time.Second))
		err := faults.Run(striking)
		enough()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Log("nothing dies any more")
	m.WaitReady(t)
	goOn(t, crowds)
	t.Log("all claim again")
	end()
	running.Wait()
	t.Logf("faults=%d %v", faults.Total(), faults.Struck)
	for _, c := range crowds {
		r := rulesOf[c.Prefix]
		v := Judge(c.History, func(string) Rules { return r }, most)
		t.Logf("%s: %s; errors %v", c.Prefix, v, c.History.Errors())
		for _, b := range v.Breaches {
			t.Error(b)
		}
		if len(v.Open) > v.Resources/10 {
			t.Errorf("%s: too hard to judge: %v", c.Prefix, v.Open)
		}
	}
}

// goOn waits until every crowd has a hundred answers more.
func goOn(t *testing.T, crowds []*Crowd) {
	t.Helper()
	const more = 100
	for _, c := range crowds {
		began, gone := c.History.Count()
		procmesh.Await(t, c.Prefix+": owners are answered", func() bool {
			ops, unknown := c.History.Count()
			return ops-unknown >= began-gone+more
		})
	}
}
