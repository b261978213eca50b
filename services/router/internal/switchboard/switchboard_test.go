package switchboard

import (
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// What edges send, or anything else on their subjects, never breaks the table.
func FuzzHear(f *testing.F) {
	f.Add(encode(f, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 1, Add: []string{"x", "y/#", "", "+#"}}), uint8(0))
	f.Add(encode(f, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Count: 3, Hash: 4}), uint8(1))
	f.Add(encode(f, &meshv1.EdgeSnapshot{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Parts: 2, Filters: []string{"x"}}), uint8(2))
	f.Add(encode(f, &meshv1.Stored{
		Runs:        []*meshv1.StoredRun{{Topic: "x", Epoch: 1, FirstSeq: 2, Records: []*meshv1.StoredRecord{{ExpiresAt: 3, Body: []byte("b")}, nil}}, nil},
		CheckTopics: []string{"", "y"},
	}), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		mesh := bus.New(bus.Config{URL: "nats://127.0.0.1:1", Name: "fuzz", Log: quiet()})
		if err := mesh.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := New(Config{RouterID: "r", Incarnation: 1, Bus: mesh, BroadcastFrom: 3, Log: quiet(), Registry: prometheus.NewRegistry()})
		hears := []func([]byte){receiver(s, decode, s.announce), receiver(s, decode, s.digest), receiver(s, new(parts).decode, s.snapshot), s.stored}
		for i := range hears {
			hears[(int(kind)+i)%len(hears)](data)
		}
		s.Route(&edgequeue.Delivery{Topic: "x"})
		s.CheckTopic("y/1")
		if err := s.edgeQueues.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if err := mesh.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
