package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func (m *mesh) get(tb testing.TB, path string) []byte {
	tb.Helper()
	resp, err := http.Get("http://" + m.router.HTTPAddr() + path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// serves waits until grpc.health.v1 says of a name whether it serves.
func (m *mesh) serves(tb testing.TB, name string, want bool) {
	tb.Helper()
	eventually(tb, fmt.Sprintf("health of %q: %v", name, want), func() error {
		resp, err := grpc_health_v1.NewHealthClient(m.conn).Check(tb.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err == nil && (resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING) != want {
			err = errors.New(resp.GetStatus().String())
		}
		return err
	})
}

func TestUnknownOutcomeMakesEdgesCheckTheTopic(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/1")
	m.store.set(func(s *fakeStore) { s.swallow = 1 })
	for len(m.log.topic("room/1")) == 0 { // where it did not come so far, it was refused for now
		_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
		if c := code.From(err); c == nil || c.Code != wirev1.Code_CODE_UNAVAILABLE || c.RetryAfter <= 0 {
			t.Fatalf("got %v", err)
		}
	}
	e.checked("room/1")
	if n := len(m.log.topic("room/1")); n != 1 {
		t.Errorf("%d in the log", n)
	}
}

func TestUnknownOutcomeIsAskedAgainWhereItCanBe(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/1")
	first := m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1", DedupeKey: "k"})
	e.got("room/1", 1)
	m.store.set(func(s *fakeStore) { s.swallow = 1 })
	resp := m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1", DedupeKey: "k2"})
	if resp.GetSeq() != 2 || resp.GetDuplicate() || len(m.log.topic("room/1")) != 2 {
		t.Errorf("got %v, %d in the log", resp, len(m.log.topic("room/1")))
	}
	e.got("room/1", 2)
	again := m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1", DedupeKey: "k"})
	if !again.GetDuplicate() || again.GetSeq() != 1 || !bytes.Equal(again.GetMessageId(), first.GetMessageId()) {
		t.Errorf("again: %v, first: %v", again, first)
	}
}

func TestWithoutStoreDurableIsRefusedAndEphemeralFlows(t *testing.T) {
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("live/x", "room/1")
	addr := m.store.addr
	m.store.kill()
	// The first refusal may have to find out; those after it take no time, but for what a busy
	// machine takes of some.
	var took []time.Duration
	for i := range 50 {
		began := time.Now()
		_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
		if c := code.From(err); c == nil || c.Code != wirev1.Code_CODE_UNAVAILABLE || c.RetryAfter <= 0 {
			t.Fatalf("durable: %v", err)
		}
		if i > 0 {
			took = append(took, time.Since(began))
		}
		m.publish(t, &pushmeshv1.PublishRequest{Topic: "live/x"})
	}
	slices.Sort(took)
	if half := took[len(took)/2]; half > time.Second {
		t.Errorf("half of the refusals took more than %v", half)
	}
	t.Logf("slowest refusal: %v", took[len(took)-1])
	e.got("live/x", 50)
	eventually(t, "readyz names the store", func() error {
		if ok, text := m.readyz(t); !ok || !strings.Contains(text, "store: degraded") {
			return errors.New(text)
		}
		return nil
	})
	m.serves(t, "", true)
	m.serves(t, "durable", false)
	m.store.listen(t, addr)
	m.serves(t, "durable", true)
	eventually(t, "durable flows again", func() error {
		_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
		return err
	})
	e.got("room/1", 1)
}

func TestNATSRestart(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/1")
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"})
	e.got("room/1", 1)
	port := portOf(t, m.nats.Addr().String())
	m.nats.Shutdown()
	m.nats.WaitForShutdown()
	eventually(t, "readyz names nats", func() error {
		if ok, text := m.readyz(t); ok || !strings.Contains(text, "nats: missing") {
			return errors.New(text)
		}
		return nil
	})
	m.serves(t, "", false)
	m.serves(t, "durable", true)
	if resp := m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"}); resp.GetSeq() != 2 {
		t.Errorf("durable without NATS: %v", resp)
	}
	// Who came since can't be known, so that no subscriber is no answer.
	_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/x"})
	if c := code.From(err); c == nil || c.Code != wirev1.Code_CODE_UNAVAILABLE || c.RetryAfter <= 0 {
		t.Errorf("ephemeral without NATS: %v", err)
	}
	m.nats = startNATS(t, port)
	m.ready(t)
	eventually(t, "a hole, or the next message", func() error {
		m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"})
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.deliveries) < 2 {
			return errors.New("nothing yet")
		}
		return nil
	})
	e.read(func(e *fakeEdge) {
		if e.holes == 0 {
			t.Error("the batch that NATS refused left no hole")
		}
	})
}

// Half of the shards move while messages are on their way: they wait for the map to follow and keep
// their order.
func TestOwnerChange(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		// they wait for half a second, which a machine that stands still may take from them
		late := ownerChange(t)
		if late == nil {
			return
		}
		if try == 8 {
			t.Fatalf("the map was late at every try: %v", late)
		}
	}
}

// ownerChange is a refusal where the map came too late.
func ownerChange(t *testing.T) *pushmeshv1.PublishStreamResponse_Result {
	t.Helper()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/#")
	second := startStore(t, m.log)
	p := openPipe(t, m)
	const n = 4000
	for ref := range uint64(n) {
		if ref == n/2 {
			moved := all(m.store.addr)
			moved[0].Last = topic.Shards/2 - 1
			moved = append(moved, all(second.addr)...)
			moved[1].First = topic.Shards / 2
			m.store.set(func(s *fakeStore) {
				s.owns = func(shard int) bool { return shard < topic.Shards/2 }
				s.map_ = moved
			})
			second.set(func(s *fakeStore) { s.map_ = moved })
		}
		p.send(&pushmeshv1.PublishStreamRequest{Batch: []*pushmeshv1.PublishStreamRequest_Item{item(ref, rooms[ref%uint64(len(rooms))])}})
	}
	p.answers(n)
	for _, r := range p.got {
		if r.GetCode() == wirev1.Code_CODE_UNAVAILABLE && r.GetRetryAfter().AsDuration() > 0 {
			return r
		}
	}
	last := map[string]uint64{}
	for ref := range uint64(n) {
		r, room := p.got[ref], rooms[ref%uint64(len(rooms))]
		if r.GetCode() != wirev1.Code_CODE_OK {
			t.Fatalf("ref %d: %v", ref, r)
		}
		if seq := r.GetResponse().GetSeq(); seq != last[room]+1 {
			t.Fatalf("%s: ref %d has seq %d after %d", room, ref, seq, last[room])
		}
		last[room]++
	}
	if second.streamsSeen() == 0 {
		t.Error("the second store got no stream")
	}
	for _, room := range rooms {
		for i, d := range e.got(room, int(last[room])) {
			if d.GetSeq() != uint64(i+1) {
				t.Fatalf("%s: delivery %d has seq %d", room, i, d.GetSeq())
			}
		}
	}
	return nil
}

var rooms = []string{"room/1", "room/2", "room/3", "room/4", "room/5", "room/6", "room/7", "room/8"}

func portOf(tb testing.TB, addr string) int {
	tb.Helper()
	_, port, err := splitPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}
