package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// budget is that of each kind of memory, and more what an edge may have beside twice of it, which
// Go's collector leaves lying: buffers, and what it has at rest.
const (
	budget = 16 << 20
	more   = 24 << 20
)

// spender is an edge of which clients use up a budget.
type spender struct {
	t      *testing.T
	edge   *procmesh.Process
	metric string
	before int64
}

// used is what the edge says that it charges.
func (s *spender) used() float64 {
	all, err := s.edge.Metrics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for name, v := range all {
		if name == s.metric || strings.HasPrefix(name, s.metric+"{") {
			sum += v
		}
	}
	return sum
}

func (s *spender) rss() int64 {
	s.t.Helper()
	n, err := procfs.RSS(s.edge.PID())
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// spend calls step so often, waits until three quarters of the budget have been charged, and
// compares what the process takes with the budget.
func (s *spender) spend(steps int, step func(i int)) {
	s.t.Helper()
	s.before = s.rss()
	top, charged := s.before, 0.0
	for i := range steps {
		step(i)
		if i%16 == 15 {
			charged, top = max(charged, s.used()), max(top, s.rss())
		}
	}
	procmesh.Await(s.t, "the budget is used", func() bool {
		charged, top = max(charged, s.used()), max(top, s.rss())
		return charged >= budget*3/4
	})
	s.t.Logf("%s: %.1f MiB are charged at most, of %d, and the process has %.1f MiB more", s.metric, charged/(1<<20), budget>>20, float64(top-s.before)/(1<<20))
	if charged > budget+budget/4 { // each loop may go beyond by what it has just read
		s.t.Errorf("%s: %.0f bytes are charged", s.metric, charged)
	}
	if top-s.before > 2*budget+more {
		s.t.Errorf("%s: the process has %d MiB more", s.metric, (top-s.before)>>20)
	}
}

// Clients that use up what an edge keeps of frames, of TLS records, of queues and of filters have
// it take that memory, and not much more, as the system sees it.
func TestAnEdgesMemoryIsWithinItsBudgets(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Write(t.TempDir(), "edge", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	size := fmt.Sprint(budget)
	m := procmesh.Start(t, procmesh.Options{Edges: 4, EdgeArgs: []string{
		"--frame-memory", size, "--queue-memory", size, "--where-memory", size, "--queue-bytes", fmt.Sprint(budget / 8),
		"--exempt-from", "127.0.0.0/8", "--tls-cert", cert, "--tls-key", key,
	}})
	of := func(t *testing.T, edge int, metric string) *spender {
		return &spender{t: t, edge: m.Edges[edge], metric: "pushmesh_edge_" + metric}
	}

	t.Run("frames", func(t *testing.T) {
		s := of(t, 0, "frame_bytes")
		const conns, part = 120, 200 << 10
		whole := frame(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 1, Topic: "room/1", Payload: make([]byte, 2*part)})
		all := dialled(t, conns, func() net.Conn { return greeted(t, m.EdgeAddrs[0], nil) })
		// who has no room is closed
		s.spend(conns, func(i int) { _, _ = all[i].Write(whole[:part]) })
	})
	t.Run("TLS records", func(t *testing.T) {
		s := of(t, 1, "frame_bytes")
		const conns = 1_200
		record := append([]byte{23, 3, 3, 0x40, 0}, make([]byte, 15<<10)...) // of 16 KiB
		all := dialled(t, conns, func() net.Conn {
			return greeted(t, m.EdgeAddrs[1], &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
		})
		s.spend(conns, func(i int) { _, _ = all[i].(*tls.Conn).NetConn().Write(record) })
	})
	t.Run("queues", func(t *testing.T) {
		s := of(t, 2, "queue_memory_used_bytes")
		var subs []*wireclient.Client
		for range 40 {
			c, _ := wireclient.Connect(t, m.EdgeAddrs[2], &wirev1.Hello{})
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "noise/+"})
			subs = append(subs, c)
		}
		conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		producer := pushmeshv1.NewPublishServiceClient(conn)
		// ephemeral: what is durable leaves a queue that is trimmed, to be read from the log later
		s.spend(3_000, func(i int) {
			if _, err := producer.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: fmt.Sprint("noise/", i%10), Payload: make([]byte, 16<<10)}); err != nil {
				t.Fatal(err)
			}
		})
		for _, c := range subs {
			c.Close()
		}
	})
	t.Run("filters", func(t *testing.T) {
		s := of(t, 3, "where_memory_bytes")
		const conns, each = 40, 500
		s.spend(conns, func(i int) {
			c, _ := wireclient.Connect(t, m.EdgeAddrs[3], &wirev1.Hello{})
			for k := range each {
				c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{
					Id: uint32(k + 1), Filter: fmt.Sprintf("room/%d/%d", i, k), Where: fmt.Sprintf("payload.n == %d && payload.text != %q", i*each+k, strings.Repeat("x", 900)),
				})
			}
			for range each {
				if _, _, err := c.Next(wireclient.Patience); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// dialled opens so many connections, which end with the test.
func dialled(t *testing.T, n int, dial func() net.Conn) (all []net.Conn) {
	t.Helper()
	for range n {
		c := dial()
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// greeted connects and says Hello, with TLS where there is a configuration.
func greeted(t *testing.T, addr string, with *tls.Config) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if with != nil {
		c = tls.Client(c, with)
	}
	if _, err := c.Write(frame(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, HeartbeatMs: uint32(time.Minute.Milliseconds())})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1<<10)); err != nil { // the Welcome
		t.Fatal(err)
	}
	return c
}
