package failures

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// metric is the value of a line of a process's metrics; -1: it has none.
func metric(p *procmesh.Process, name string) float64 {
	resp, err := http.Get("http://" + p.HTTP + "/metrics")
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(body)) {
		var v float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err == nil {
				return v
			}
		}
	}
	return -1
}

// notReady waits until a router says that it is not, and its producers have left.
func notReady(t *testing.T, w *world, p *procmesh.Process) {
	t.Helper()
	procmesh.Await(t, p.Name+" is not ready", func() bool {
		status, body := p.Status()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "nats: missing")
	})
	left(t, w, p)
}

// left waits until no producer of the SDK publishes through a router.
func left(t *testing.T, w *world, p *procmesh.Process) {
	t.Helper()
	for i := range w.Routers {
		if w.Routers[i] == p {
			procmesh.Await(t, "producers leave "+p.Name, func() bool { return len(w.at(w.RouterAddrs[i])) == 1 })
		}
	}
}

// cutOff checks what an edge does that NATS can't reach, or that can't reach it: it stays up and
// says what is missing, its subscribers get durable messages from the log, its clients' ephemeral
// ones are refused, and routers drop it.
func (w *world) cutOff(t *testing.T, p *procmesh.Process) {
	t.Helper()
	procmesh.Await(t, p.Name+" says that NATS is missing, and is ready", func() bool {
		status, body := p.Status()
		return status == http.StatusOK && strings.Contains(body, "nats: degraded") && strings.Contains(body, "routers: degraded")
	})
	for _, r := range w.Routers {
		procmesh.Await(t, r.Name+" drops the edge and is ready", func() bool {
			status, _ := r.Status()
			return status == http.StatusOK && metric(r, "pushmesh_router_edges") == float64(len(w.Edges)-1)
		})
	}
	if n := metric(p, "pushmesh_edge_routers"); n != 0 {
		t.Errorf("%s: %v routers in its metrics", p.Name, n)
	}
	w.refusesEphemeral(t, p)
	w.flows(t)
}

// flows waits until every subscriber has what is published now.
func (w *world) flows(t *testing.T) {
	t.Helper()
	w.flowsFrom(t, w.producers)
}

func (w *world) flowsFrom(t *testing.T, producers []*producer) {
	t.Helper()
	marks := map[string]uint64{}
	for _, p := range producers {
		before := p.high()
		procmesh.Await(t, fmt.Sprintf("durable messages of producer %d are taken", p.number), func() bool { return p.high() > before })
		marks[p.durable()] = p.high()
	}
	for _, d := range w.diaries {
		procmesh.Await(t, d.name+" gets durable messages", func() bool { return d.reached(marks) })
	}
}

// refusesEphemeral publishes as a client of an edge.
func (w *world) refusesEphemeral(t *testing.T, p *procmesh.Process) {
	t.Helper()
	for i := range w.Edges {
		if w.Edges[i] != p {
			continue
		}
		c, _ := wireclient.Connect(t, w.EdgeAddrs[i], &wirev1.Hello{ClientId: "refused"})
		defer c.Close()
		c.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 1, Topic: "live/refused", Payload: []byte("x")})
		if e := c.Error(); e.GetCode() != wirev1.Code_CODE_UNAVAILABLE || e.GetRetryAfterMs() == 0 {
			t.Errorf("%s: an ephemeral message without NATS: %v", p.Name, e)
		}
	}
}

// withoutNATS checks what holds while there is none at all: every edge as one that is cut off, and
// durable publishing goes on, with the SDK and by plain calls that go where the health of "durable"
// is good; those that look for a router that is ready find none, and wait.
func (w *world) withoutNATS(t *testing.T) {
	t.Helper()
	for _, p := range w.Edges {
		procmesh.Await(t, p.Name+" says that NATS is missing, and is ready", func() bool {
			status, body := p.Status()
			return status == http.StatusOK && strings.Contains(body, "nats: degraded")
		})
		w.refusesEphemeral(t, p)
	}
	w.flowsFrom(t, w.producers[:len(w.producers)-1])
	conn, err := balanced(w.RouterAddrs, "durable")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), closeWithin)
	defer cancel()
	for n := range 20 {
		_, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{Topic: durable + "/plain", DedupeKey: fmt.Sprint(n)}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatalf("a plain call without NATS: %v", err)
		}
	}
}
