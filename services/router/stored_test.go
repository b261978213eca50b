package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// What stores append on their own is routed by one of the live routers, to the edges that want it.
func TestStoredMessagesAreRoutedOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	second, err := New(t.Context(), Settings{
		Open: true, Flags: tierauth.Flags{PlainTiers: true}, ID: "r2", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", NATS: m.nats.ClientURL(), Stores: []string{m.store.addr}, LogLevel: "error",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := &mesh{nats: m.nats, router: second}
	other.ready(t)
	wants := startEdge(t, m.nats.ClientURL(), "wants", "r1", "r2")
	not := startEdge(t, m.nats.ClientURL(), "not", "r1", "r2")
	wants.want("room/1", "room/2")
	not.want("room/3")
	store := bus.New(bus.Config{URL: m.nats.ClientURL(), Name: "store", Mesh: meshidtest.Identity(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Stop(t.Context()) }()
	eventually(t, "store connects", store.Check)
	tell := func(n *meshv1.Stored) {
		data, err := proto.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Publish(bus.Stored, data); err != nil {
			t.Fatal(err)
		}
	}
	const notices = 50
	for n := range uint64(notices) {
		tell(&meshv1.Stored{Runs: []*meshv1.StoredRun{{Topic: "room/1", Epoch: 5, FirstSeq: 2*n + 1, Records: []*meshv1.StoredRecord{
			{ExpiresAt: 77, Body: []byte("a")}, {Body: []byte("b")},
		}}}})
	}
	seen := map[uint64]int{}
	for _, d := range wants.got("room/1", 2*notices) {
		seen[d.GetSeq()]++
		first := d.GetSeq()%2 == 1
		if d.GetEpoch() != 5 || (d.GetExpiresAt() == 77) != first || (string(d.GetBody()) == "a") != first {
			t.Errorf("delivery %v", d)
		}
	}
	for seq := range uint64(2 * notices) {
		if seen[seq+1] != 1 {
			t.Errorf("seq %d came %d times", seq+1, seen[seq+1])
		}
	}
	// One of two stops: the other gets all of them from then on.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := second.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(20) {
		tell(&meshv1.Stored{Runs: []*meshv1.StoredRun{{Topic: "room/2", Epoch: 5, FirstSeq: n + 1, Records: []*meshv1.StoredRecord{{}}}}})
	}
	tell(&meshv1.Stored{CheckTopics: []string{"room/1"}})
	if ds := wants.got("room/2", 20); len(ds) != 20 {
		t.Errorf("%d deliveries, want 20", len(ds))
	}
	wants.checked("room/1")
	not.read(func(e *fakeEdge) {
		if len(e.deliveries) > 0 {
			t.Error(fmt.Sprint("an edge got what it did not want: ", e.deliveries))
		}
	})
}
