package presencewatch

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// one edge, which wants everything.
type one struct{ edge interest.Edge }

func (o one) Check() error { return nil }

func (o one) Edges() []interest.Edge { return []interest.Edge{o.edge} }

func (o one) Interested(dst []interest.Edge, _ string) []interest.Edge { return append(dst, o.edge) }

// frame is the nth report of the edge, with one member.
func (o one) frame(w *Watches, kind meshv1.PresenceReport_Kind, n uint64) {
	w.mu.Lock()
	r := &meshv1.PresenceReport{
		Kind: kind, Watch: w.ids, Ask: w.asks, Serial: 1, N: n, Changes: []*meshv1.PresenceChange{{Member: &meshv1.PresenceMember{ConnectionId: n}}},
	}
	w.mu.Unlock()
	data, _ := proto.Marshal(&meshv1.PresenceFrame{
		EdgeId: o.edge.ID, EdgeIncarnation: o.edge.Incarnation, RouterIncarnation: w.cfg.Incarnation, Reports: []*meshv1.PresenceReport{r},
	})
	w.Receive(data)
}

// lists namespace crew, with presence.
type lists struct{}

func (lists) ListNamespaces(context.Context, *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	return &meshv1.ListNamespacesResponse{Version: 1, Namespaces: []*pushmeshv1.Namespace{{Prefix: "crew", Policy: &pushmeshv1.Policy{Presence: true}}}}, nil
}

// The first snapshot waits for an edge that is about to send its members, and for no longer than 30
// s, whatever that edge says; for one that says nothing it waits 2 s. It tells that the edge is
// missing, whose members are joins later.
func TestFirstSnapshotWaitsForEdgesThatAreHeard(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name         string
		silent       time.Duration // from when on the edge is not heard
		last         time.Duration // when it sends the last part
		want         time.Duration
		waiting      uint32
		atOnce, more int // members of the snapshot, and joins later
	}{
		{"it says nothing", 0, never, firstWithin, 1, 0, 0},
		{"it falls silent", 5 * time.Second, never, 4*time.Second + firstWithin, 1, 0, 0},
		{"it has sent everything", never, 10 * time.Second, 10 * time.Second, 0, 10, 0},
		{"it does not come to an end", never, 40 * time.Second, firstAtMost, 1, 0, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				edge := one{interest.Edge{ID: "edge", Incarnation: 7}}
				policies := policy.NewWatch(lists{}, nil, "router.r", slog.New(slog.DiscardHandler))
				if err := policies.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				w := New(Config{Incarnation: 3, Edges: edge, Bus: bus.New(bus.Config{}), Policies: policies, MaxStreams: 1, MaxMembers: 1000, MaxQueued: 1000})
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				go func() { // the edge: a part each second, as long as it says anything
					for n := uint64(1); ctx.Err() == nil; n++ {
						<-time.After(time.Second)
						if at := time.Since(began); at >= c.last {
							edge.frame(w, meshv1.PresenceReport_KIND_LAST, n)
							return
						} else if at >= c.silent {
							return
						}
						edge.frame(w, meshv1.PresenceReport_KIND_PART, n)
					}
				}()
				go w.run(ctx)
				snapshot, stream, err := w.Open(t.Context(), "crew/1")
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began).Round(2 * tickEvery); took != c.want || snapshot.Silent != c.waiting {
					t.Errorf("after %v without %d edges, want %v without %d", took, snapshot.Silent, c.want, c.waiting)
				}
				members, _ := snapshot.Take(1000)
				if len(members) != c.atOnce {
					t.Errorf("%d members", len(members))
				}
				for joined := 0; joined < c.more; {
					changes, err := stream.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					joined += len(changes)
				}
				stream.Close()
				cancel()
				if err := policies.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
