package promise

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Two meshes with databases of their own on one NATS, whose processes have the same ids and whose
// messages the same topics, keep their promises each for itself while processes of both, and NATS,
// are killed or frozen at random.
func TestTwoMeshesOnOneNATSWhateverDies(t *testing.T) {
	n := seed(t)
	db, url := Postgres(t)
	first := procmesh.Start(t, procmesh.Options{Edges: 2, Routers: 2, Stores: 2, DB: url, StoreArgs: []string{"--mesh", "first"}})
	second := procmesh.Start(t, procmesh.Options{NATS: first.NATSURL(), StoreArgs: []string{"--mesh", "second"}})
	all := victims(first, db)
	for _, p := range slices.Concat(second.Stores, second.Routers, second.Edges) {
		all = append(all, Victim{Name: "second " + p.Name, Kind: Kill, Strike: func() error { p.Kill(); return nil }, Back: p.Start})
	}
	faults := &Faults{Victims: all, Every: time.Second, Down: 1500 * time.Millisecond, Rand: rand.New(rand.NewPCG(n, 1))}
	plays := []*Play{
		{Routers: first.RouterAddrs, Edges: first.EdgeAddrs, Seed: n, Logf: t.Logf, Known: first.KnowNamespaces, Killed: first.EdgesKilled, Groups: first.Groups, Rate: 100, Lives: 4 * time.Second},
		{Routers: second.RouterAddrs, Edges: second.EdgeAddrs, Seed: n, Logf: t.Logf, Known: second.KnowNamespaces, Killed: second.EdgesKilled, Groups: second.Groups, Rate: 100, Lives: 4 * time.Second},
	}
	var v [2]*Verdict
	v[0] = judged(t, plays[0], func(ctx context.Context) {
		v[1] = judged(t, plays[1], func(ctx context.Context) {
			const most = 10
			for range most {
				strike(ctx, t, faults, length(t, "PUSHMESH_CHAOS_NEIGHBOUR_FOR"))
				_, a := plays[0].Offered()
				_, b := plays[1].Offered()
				if faults.Total() >= 5 && min(a, b) >= 300 {
					break
				}
			}
			first.WaitReady(t)
			second.WaitReady(t)
			for _, p := range plays { // one does not go on while the other settles
				p.Quiet()
			}
		})
	})
	t.Logf("faults=%d %v", faults.Total(), faults.Struck)
	report.add("two meshes on one NATS", n, faults, v[:]...)
	for i, verdict := range v {
		t.Logf("mesh %d: %v", i+1, verdict)
		for _, b := range verdict.Breaches {
			t.Errorf("mesh %d: %v", i+1, b)
		}
		if verdict.Answered < 300 {
			t.Errorf("mesh %d: too little happened: %d messages answered", i+1, verdict.Answered)
		}
	}
	for i, m := range []*procmesh.Mesh{first, second} {
		procmesh.Await(t, "each mesh has all of its shards", func() bool {
			return shards(t, m) == 1024
		})
		agree(t, m)
		for _, r := range m.Routers {
			if _, body := r.Status(); !strings.Contains(body, "mesh: ok") {
				t.Errorf("mesh %d: %s says %q", i+1, r.Name, body)
			}
		}
	}
}

// shards that the mesh's stores own, as a router heard them say.
func shards(t *testing.T, m *procmesh.Mesh) (n uint32) {
	t.Helper()
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	list, err := pushmeshv1.NewMeshServiceClient(conn).Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{})
	if err != nil {
		t.Log(err) // it is asked again
		return 0
	}
	for _, node := range list.GetNodes() {
		n += node.GetShards()
	}
	return n
}
