package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// late keeps a loop from turning for d, then lets it turn once, and so on, until stop. Replies to
// Count are called on the loop.
func late(l *loop.Loop, d time.Duration, stop <-chan struct{}) {
	l.Post(exchange.Count{Reply: func([]uint64) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			late(l, d, stop)
		case <-stop:
		}
	}})
}

// An edge that is late all the time is ready and serves those that it has; it refuses newcomers
// until it is not late any more.
func TestLateEdgeRefusesNewcomers(t *testing.T) {
	w := newWorld(t)
	s := w.settings("e1")
	s.Loops, s.ShedLag = 1, 400*time.Millisecond // far above what a busy machine brings about
	e, _ := w.edgeWith(s)
	l := e.loops[0]
	get := func(path string, parts ...string) error {
		resp, err := http.Get("http://" + e.HTTPAddr() + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %w: %s", resp.StatusCode, err, body)
		}
		for _, part := range parts {
			if !strings.Contains(string(body), part) {
				return fmt.Errorf("no %q in %s", part, body)
			}
		}
		return nil
	}
	edgetest.WaitFor(t, "/readyz", func() error { return get("/readyz?verbose", "lag: ok") })
	old := w.client(e, &wirev1.Hello{})
	old.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})

	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	late(l, 600*time.Millisecond, stop)
	edgetest.WaitFor(t, "the loop to shed", func() error {
		if s := l.Stats(); !s.Shedding {
			return fmt.Errorf("its lag is %v", s.Lag.Recent())
		}
		return nil
	})
	if err := get("/readyz?verbose", "lag: degraded: loop 0"); err != nil {
		t.Fatal(err)
	}
	old.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room/2"})
	old.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	conn, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	newcomer := &client{t: t, conn: conn}
	newcomer.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version})
	if got := newcomer.ended(); got.GetCode() != wirev1.Code_CODE_OVERLOADED || got.GetRetryAfterMs() == 0 {
		t.Fatalf("the newcomer is told %v", got)
	}
	refused := &wirev1.Error{}
	old.read(wirev1.FrameType_FRAME_TYPE_ERROR, refused)
	if refused.GetCode() != wirev1.Code_CODE_OVERLOADED || refused.GetRef() != 2 || refused.GetRetryAfterMs() == 0 {
		t.Fatalf("the new subscription is told %v", refused)
	}
	old.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	w.router.Send(w.store.Publish("room/1", 1)...)
	old.messages("room/1", 1)
	edgetest.WaitFor(t, "/metrics", func() error {
		return get("/metrics", "pushmesh_edge_shedding_loops 1\n", "pushmesh_edge_shedding_started_total 1\n", `pushmesh_edge_closes_total{code="OVERLOADED"} 1`, `pushmesh_edge_refused_total{code="OVERLOADED"} 1`)
	})

	end()
	edgetest.WaitFor(t, "the loop to take newcomers", func() error { return get("/readyz?verbose", "lag: ok") })
	w.client(e, &wirev1.Hello{})
	old.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2"})
}
