package store

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// meshOf is the mesh that a store names.
func meshOf(t *testing.T, c meshv1.StoreServiceClient) meshid.Mesh {
	t.Helper()
	resp, err := c.Owners(within(t), &meshv1.OwnersRequest{})
	need(t, err)
	return meshid.Mesh{Name: resp.GetMeshName(), ID: resp.GetMeshId()}
}

// readyz is what a store says of itself.
func readyz(t *testing.T, st *Store) string {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+st.HTTPAddr()+"/readyz?verbose", nil)
	need(t, err)
	resp, err := http.DefaultClient.Do(req)
	need(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	need(t, err)
	return string(body)
}

// Two meshes with databases of their own on one NATS: each store keeps all shards of its mesh, also
// where the meshes have one name and the stores one id. Where they have one name, each says so,
// with both ids and what to do; where they have not, nobody says anything.
func TestTwoMeshesOnOneNATS(t *testing.T) {
	t.Parallel()
	nats := natsServer(t)
	start := func(id, mesh string) *Store {
		return serving(t, Settings{ID: id, DB: pgtest.URL(t), NATS: nats.ClientURL(), Mesh: mesh, LogLevel: "error"})
	}
	stores := []*Store{start("store-1", ""), start("store-1", ""), start("store-2", "other")}
	ids := map[string]bool{}
	for _, st := range stores {
		eventually(t, "each store owns every shard of its mesh", func() bool { return len(st.core.log.Load().Owned()) == topic.Shards })
		ids[meshOf(t, dial(t, st.Addr())).ID] = true
	}
	if len(ids) != 3 {
		t.Fatalf("ids of three meshes: %v", ids)
	}
	for i, st := range stores[:2] {
		mine, others := meshOf(t, dial(t, st.Addr())), meshOf(t, dial(t, stores[1-i].Addr()))
		eventually(t, "both say that there are two of one name", func() bool {
			said := readyz(t, st)
			return strings.Contains(said, "mesh: degraded: another mesh named main uses this NATS") && strings.Contains(said, mine.ID) &&
				strings.Contains(said, others.ID) && strings.Contains(said, "--new-mesh")
		})
	}
	if said := readyz(t, stores[2]); !strings.Contains(said, "mesh: ok") {
		t.Errorf("a mesh that has a name of its own says %q", said)
	}
	for _, st := range stores {
		// they beat for as long as a store must be silent to be fenced, and longer
		if n := len(st.core.log.Load().Owned()); n != topic.Shards {
			t.Errorf("a store has %d shards of %d", n, topic.Shards)
		}
	}
}

// Beats that another mesh's processes, or programs from before mesh ids, send change nothing: not
// who lives, not who owns what.
func TestForgedBeatsChangeNothing(t *testing.T) {
	t.Parallel()
	server := natsServer(t)
	st := serving(t, Settings{ID: "store-1", DB: pgtest.URL(t), NATS: server.ClientURL(), LogLevel: "error"})
	eventually(t, "it owns everything", func() bool { return len(st.core.log.Load().Owned()) == topic.Shards })
	mine := meshOf(t, dial(t, st.Addr()))
	conn, err := nats.Connect(server.ClientURL())
	need(t, err)
	defer conn.Close()
	foreign := meshid.Mesh{Name: mine.Name, ID: meshid.NewID()}
	for _, prefix := range []string{"pushmesh.", "pushmesh." + mine.Name + ".", fmt.Sprintf("pushmesh.%s.%s.", foreign.Name, foreign.ID)} {
		for _, id := range []string{"store-1", "store-2"} {
			data, err := proto.Marshal(&meshv1.StoreBeat{StoreId: id, StoreIncarnation: 99, Address: "127.0.0.1:1", Shards: topic.Shards})
			need(t, err)
			need(t, conn.Publish(prefix+bus.StoreBeat, data))
		}
	}
	hello, err := proto.Marshal(&meshv1.MeshHello{MeshId: foreign.ID, MeshName: foreign.Name, StoreId: "forged"})
	need(t, err)
	need(t, conn.Publish("pushmesh."+mine.Name+".hello", hello))
	need(t, conn.Flush())
	// and all that was sent before it
	eventually(t, "the forged hello is heard", func() bool { return strings.Contains(readyz(t, st), foreign.ID) })
	if owned, err := st.core.owners.Owners(), st.core.owners.CheckID(); len(owned) != 1 || err != nil {
		t.Errorf("owners %v, %v", owned, err)
	}
	if n := len(st.core.log.Load().Owned()); n != topic.Shards {
		t.Errorf("%d shards of %d", n, topic.Shards)
	}
}

// A store's database says which mesh it is of, for good; another name is refused, and a new mesh is
// made on an operator's word alone.
func TestADatabaseKeepsItsMesh(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := "sqlite:" + t.TempDir() + "/store.db"
			if kind == "postgres" {
				db = pgtest.URL(t)
			}
			set := Settings{ID: "store-1", DB: db, Standalone: true, LogLevel: "error", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
			run := func(change func(*Settings)) (m meshid.Mesh, err error) {
				s := set
				change(&s)
				s.PlainTiers = true
				st, err := New(within(t), s)
				need(t, err)
				if err := st.Start(within(t)); err != nil {
					return m, err
				}
				m, _ = st.core.mesh.Mesh()
				return m, st.Stop(within(t))
			}
			first, err := run(func(s *Settings) { s.Mesh = "prod" })
			if err != nil || first.Name != "prod" {
				t.Fatalf("first start: %v, %v", first, err)
			}
			if again, err := run(func(*Settings) {}); err != nil || again != first {
				t.Errorf("without a name: %v, %v", again, err)
			}
			if _, err := run(func(s *Settings) { s.Mesh = "test" }); err == nil || !strings.Contains(err.Error(), first.String()) || !strings.Contains(err.Error(), "--mesh test") {
				t.Errorf("with another name: %v", err)
			}
			renamed, err := run(func(s *Settings) { s.Mesh, s.NewMesh = "test", true })
			if err != nil || renamed.Name != "test" || renamed.ID == first.ID {
				t.Errorf("a new mesh: %v, %v", renamed, err)
			}
			if again, err := run(func(*Settings) {}); err != nil || again != renamed {
				t.Errorf("after that: %v, %v", again, err)
			}
		})
	}
}

// A database of another mesh is not taken as one of several, although it has the very name that it
// is given.
func TestADatabaseOfAnotherMeshIsRefused(t *testing.T) {
	t.Parallel()
	homes, further := []string{pgtest.URL(t), pgtest.URL(t)}, []string{pgtest.URL(t), pgtest.URL(t)}
	run := func(home, b string) error {
		st, err := New(within(t), Settings{
			Flags: tierauth.Flags{PlainTiers: true},
			ID:    "store-1", DB: home, ShardDBs: map[string]string{"b": b}, Standalone: true, LogLevel: "error", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		})
		need(t, err)
		if err := st.Start(within(t)); err != nil {
			return err
		}
		return st.Stop(within(t))
	}
	need(t, run(homes[0], further[0]))
	need(t, run(homes[1], further[1]))
	if err := run(homes[0], further[1]); err == nil || !strings.Contains(err.Error(), "database b: it belongs to mesh main") {
		t.Errorf("another mesh's database b: %v", err)
	}
	need(t, run(homes[0], further[0]))
}

// A call that names another mesh is refused, with a time to come back; so is a stream.
func TestCallsOfAnotherMeshAreRefused(t *testing.T) {
	t.Parallel()
	st := serving(t, Settings{ID: "store-1", DB: "sqlite:" + t.TempDir() + "/store.db", Standalone: true, LogLevel: "error"})
	mine := meshOf(t, dial(t, st.Addr()))
	conn, err := grpc.NewClient(st.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	need(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := meshv1.NewStoreServiceClient(conn)
	for _, id := range []string{mine.ID, meshid.NewID()} {
		ctx := metadata.AppendToOutgoingContext(within(t), meshid.Header, id)
		want := wirev1.Code_CODE_OK
		if id != mine.ID {
			want = wirev1.Code_CODE_UNAVAILABLE
		}
		_, unary := c.Owners(ctx, &meshv1.OwnersRequest{})
		stream, err := c.ReadLog(ctx, &meshv1.ReadLogRequest{Topic: "room/1", FromSeq: 1, ToSeq: 1})
		need(t, err)
		_, streamed := stream.Recv()
		if streamed == io.EOF { //nolint:errorlint // of grpc, as it is
			streamed = nil
		}
		for _, err := range []error{unary, streamed} {
			if got := code.From(err); err == nil && want != wirev1.Code_CODE_OK || err != nil && (got.Code != want || got.RetryAfter < time.Millisecond || !strings.Contains(got.Message, mine.ID)) {
				t.Errorf("named %s: %v, want %s", id, err, code.Name(want))
			}
		}
	}
}
