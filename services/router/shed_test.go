package router

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A store that answers nothing has what is durable refused, soon and with a time to come back, and
// nothing else.
func TestASilentStoreIsOverload(t *testing.T) {
	m := startMesh(t, func(s *Settings) { s.AppendWait = time.Millisecond })
	gate := make(chan struct{})
	m.store.set(func(s *fakeStore) { s.gate = gate })
	p := openPipe(t, m)
	sent, answered := make(chan uint64, 1), make(chan struct{})
	go func() {
		ref := uint64(0)
		defer func() { sent <- ref }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			ref++
			if p.stream.Send(&pushmeshv1.PublishStreamRequest{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "room/1"}}) != nil {
				return
			}
			select {
			case <-answered:
				return
			case <-tick.C:
			}
		}
	}()
	p.answers(1)
	close(answered)
	n := <-sent
	for ref, r := range p.got {
		if r.GetCode() != wirev1.Code_CODE_OVERLOADED || r.GetRetryAfter().AsDuration() < 20*time.Millisecond || ref <= 512 {
			t.Errorf("ref %d: %v", ref, r) // 512 that wait are no burden
		}
	}
	_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
	if e := code.From(err); err == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter <= 0 {
		t.Errorf("durable: %v", err)
	}
	if _, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"}); err != nil {
		t.Errorf("ephemeral: %v", err)
	}
	if _, v := m.metric(t, `pushmesh_router_admission_refusals_total{code="OVERLOADED",reason="store"}`); v == "" || v == "0" {
		t.Errorf("%q refusals are counted", v)
	}
	close(gate)
	p.answers(int(n))
	eventually(t, "taken again", func() error {
		_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
		return err
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	m := startMesh(t, func(s *Settings) { s.MaxConnections = 3 })
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"}) // that is the first one
	for range 2 {
		conn, err := net.Dial("tcp", m.router.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	eventually(t, "three connections", func() error { return m.sample(t, "pushmesh_router_connections", "3") })
	more, err := net.Dial("tcp", m.router.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := more.Read(make([]byte, 1)); err == nil {
		t.Error("one more was served")
	}
	_ = more.Close()
	eventually(t, "counted", func() error {
		return m.sample(t, `pushmesh_router_connections_refused_total{code="TOO_MANY_CONNECTIONS"}`, "1")
	})
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"})
}

func (m *mesh) sample(tb testing.TB, name, want string) error {
	tb.Helper()
	if _, got := m.metric(tb, name); strings.TrimSpace(got) != want {
		return fmt.Errorf("%s is %s, want %s", name, got, want)
	}
	return nil
}
