package router

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// The TTL of a message is counted by the database's time: edges judge by that. From a router on a
// machine whose clock is an hour behind, every message with a TTL below that would have expired
// before it came.
func TestATTLBeginsByTheDatabasesTime(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	a.want("room/1", "live/x")
	b := bus.New(bus.Config{URL: m.nats.ClientURL(), Name: "store", Mesh: meshidtest.Identity(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "connects", b.Check)
	mesh := func() time.Time { return time.Now().Add(time.Hour) }
	beat, err := proto.Marshal(&meshv1.StoreBeat{StoreId: "s", Time: uint64(mesh().UnixMicro())})
	if err == nil {
		err = b.Publish(bus.StoreBeat, beat)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the router knows the database's time", func() error {
		if _, text := m.readyz(t); !strings.Contains(text, "clock: degraded") {
			return errors.New(text)
		}
		return nil
	})
	for _, topic := range []string{"room/1", "live/x"} {
		before := mesh()
		m.publish(t, &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte("x"), Ttl: durationpb.New(time.Minute)})
		ends := time.UnixMicro(int64(a.got(topic, 1)[0].GetExpiresAt()))
		if lives := ends.Sub(before); lives < 59*time.Second || ends.Sub(mesh()) > time.Minute {
			t.Errorf("%s: a message with a TTL of a minute lives for %v by the database's time", topic, lives)
		}
	}
}
