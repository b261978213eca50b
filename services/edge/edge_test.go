package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

type world struct {
	t      *testing.T
	nats   *edgetest.NATS
	store  *edgetest.Store
	router *edgetest.Router
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nats: edgetest.NewNATS(t), store: edgetest.NewStore(t)}
	w.router = edgetest.NewRouter(t, w.nats, "r1", "e1")
	return w
}

func (w *world) settings(id string) Settings {
	return Settings{
		Flags: tierauth.Flags{PlainTiers: true}, Open: true, ID: id, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", NATS: w.nats.URL(), Stores: []string{w.store.Addr()},
		Loops: 2, LogLevel: "error", Grace: edgetest.Patience, Drain: edgetest.Patience / 2, Poller: os.Getenv("PUSHMESH_TEST_POLLER"),
	}
}

// edge starts one; it stops with the test, unless stop was called.
func (w *world) edge(id string) (e *Edge, stop func() error) {
	w.t.Helper()
	return w.edgeWith(w.settings(id))
}

func (w *world) edgeWith(s Settings) (e *Edge, stop func() error) {
	w.t.Helper()
	e, err := New(w.t.Context(), s)
	if err == nil {
		err = e.Start(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), edgetest.Patience)
		defer cancel()
		return e.Stop(ctx)
	}
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Error(err)
		}
	})
	edgetest.WaitFor(w.t, "the store's owners", e.stores.Check)
	return e, stop
}

// client speaks the subscriber protocol.
type client struct {
	t    *testing.T
	conn net.Conn
	seen map[string]uint64 // the highest seq of each topic
}

func (w *world) client(e *Edge, hello *wirev1.Hello) *client {
	w.t.Helper()
	return w.clientAt(e.Addr(), hello)
}

func (w *world) clientAt(addr string, hello *wirev1.Hello) *client {
	w.t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	c := &client{t: w.t, conn: conn, seen: map[string]uint64{}}
	hello.Version = wire.Version
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	return c
}

func (c *client) send(ft wirev1.FrameType, m proto.Message) {
	c.t.Helper()
	frame, err := wire.Append(nil, ft, m)
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// read reads the next frame, which must be of a type. What comes again, because it was not ACKed in
// time, is passed over, and so is the word of a topic's first epoch, which the tests of the hub
// look at.
func (c *client) read(want wirev1.FrameType, into proto.Message) {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(edgetest.Patience)); err != nil {
		c.t.Fatal(err)
	}
	for {
		ft, body, err := wire.Read(c.conn, nil, wire.MaxBody)
		if err == nil && (ft == wirev1.FrameType_FRAME_TYPE_MESSAGE && c.again(body) || ft == wirev1.FrameType_FRAME_TYPE_PROGRESS && ft != want && namesEpoch(body)) {
			continue
		}
		if err != nil || ft != want {
			c.t.Fatalf("got %v %q %v, want %v", ft, body, err, want)
		}
		if err := proto.Unmarshal(body, into); err != nil {
			c.t.Fatal(err)
		}
		return
	}
}

// again says that a Message is one that this connection was sent before, and says so itself.
func (c *client) again(body []byte) bool {
	m := &wirev1.Message{}
	if err := proto.Unmarshal(body, m); err != nil {
		c.t.Fatal(err)
	}
	if m.GetAttempt() > 0 && m.GetSeq() <= c.seen[m.GetTopic()] {
		return true
	}
	c.seen[m.GetTopic()] = m.GetSeq()
	return false
}

func (c *client) subscribe(s *wirev1.Subscribe) *wirev1.Subscribed {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, s)
	answer := &wirev1.Subscribed{}
	c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, answer)
	return answer
}

func (c *client) messages(topic string, seqs ...uint64) {
	c.t.Helper()
	for _, seq := range seqs {
		m := &wirev1.Message{}
		c.read(wirev1.FrameType_FRAME_TYPE_MESSAGE, m)
		if want := fmt.Sprintf("%s %d", topic, seq); m.GetTopic() != topic || m.GetSeq() != seq || !bytes.Equal(m.GetPayload(), []byte(want)) {
			c.t.Fatalf("got %v, want %s", m, want)
		}
	}
}

func (c *client) ack(topic string, seq uint64) {
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: topic, Seq: seq, Through: true}}})
}

// ended waits for the connection's end, and returns the Error before it, if one came.
func (c *client) ended() *wirev1.Error {
	c.t.Helper()
	var last *wirev1.Error
	if err := c.conn.SetReadDeadline(time.Now().Add(edgetest.Patience)); err != nil {
		c.t.Fatal(err)
	}
	for {
		ft, body, err := wire.Read(c.conn, nil, wire.MaxBody)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			c.t.Fatal("the connection stays")
		case err != nil:
			return last
		case ft == wirev1.FrameType_FRAME_TYPE_ERROR:
			last = &wirev1.Error{}
			if err := proto.Unmarshal(body, last); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func TestMessagesReachSubscribersLiveAndFromTheLog(t *testing.T) {
	w := newWorld(t)
	w.store.Publish("room/1", 3)
	e, _ := w.edge("e1")
	live := w.client(e, &wirev1.Hello{})
	if s := live.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"}); s.GetHead() != 3 || s.GetEpoch() != edgetest.Epoch {
		t.Errorf("%v", s)
	}
	old := w.client(e, &wirev1.Hello{})
	old.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_EARLIEST})
	old.messages("room/1", 1, 2, 3)
	w.router.Send(w.store.Publish("room/1", 2)...)
	w.store.Publish("room/1", 1)
	w.router.Lose()
	w.router.Beat()
	live.messages("room/1", 4, 5, 6)
	old.messages("room/1", 4, 5, 6)
}

func TestReadyzNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, _ := w.edge("e1")
	c := w.client(e, &wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	ready := func(lines ...string) {
		t.Helper()
		edgetest.WaitFor(t, "/readyz", func() error {
			resp, err := http.Get("http://" + e.HTTPAddr() + "/readyz?verbose")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%d %w: %s", resp.StatusCode, err, body)
			}
			for _, line := range lines {
				if !strings.Contains(string(body), line) {
					return fmt.Errorf("no %q in %s", line, body)
				}
			}
			return nil
		})
	}
	ready("loops: ok", "draining: ok", "nats: ok", "store: ok", "routers: ok")
	w.router.Mute(true)
	ready("routers: degraded: no router is alive", "nats: ok")
	w.router.Mute(false)
	w.nats.Down()
	ready("nats: degraded: not connected to NATS", "routers: degraded")
	w.store.Down()
	ready("store: degraded")
	w.nats.Up()
	w.store.Up()
	ready("nats: ok", "store: ok", "routers: ok")
	w.router.WaitHolds("room/1")
	w.router.Send(w.store.Publish("room/1", 1)...)
	c.messages("room/1", 1)
}

func TestSessionMovesBetweenEdges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	edgetest.NewRouter(t, w.nats, "r2", "e2")
	e1, _ := w.edge("e1")
	e2, _ := w.edge("e2")
	for tries := 1; !w.sessionMoves(e1, e2, fmt.Sprint("phone", tries), fmt.Sprint("room/", tries)); tries++ {
		if tries == 5 {
			t.Fatal("the holder never yielded in time")
		}
	}
}

// sessionMoves is false where the machine stood still for so long that the new edge went on without
// the old one.
func (w *world) sessionMoves(e1, e2 *Edge, session, topic string) bool {
	t := w.t
	t.Helper()
	hello := func() *wirev1.Hello { return &wirev1.Hello{ClientId: "ann", Session: session} }
	sub := &wirev1.Subscribe{Id: 1, Filter: topic, Ack: true, Start: wirev1.Start_START_SESSION}
	first := w.client(e1, hello())
	first.subscribe(sub)
	if c := w.store.Cursor("client:ann", session, topic); c == nil || c.GetFloor() != 0 {
		t.Errorf("the first position %v was not stored before Subscribed", c)
	}
	acks := e1.acks()
	w.router.Send(w.store.Publish(topic, 3)...)
	first.messages(topic, 1, 2, 3)
	first.ack(topic, 2)
	edgetest.WaitFor(t, "the ACK", func() error {
		if n := e1.acks() - acks; n != 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	second := w.client(e2, hello())
	if err := first.ended(); err.GetCode() != wirev1.Code_CODE_SESSION_TAKEN_OVER {
		t.Errorf("the first connection ended with %v", err)
	}
	if edge, generation := w.store.Holder("client:ann", session); edge != "e2" || generation != 2 {
		t.Errorf("held by %s, generation %d", edge, generation)
	}
	if c := w.store.Cursor("client:ann", session, topic); c.GetFloor() != 2 {
		return false
	}
	if s := second.subscribe(sub); !s.GetRecovered() || s.GetHead() != 3 {
		t.Errorf("%v", s)
	}
	second.messages(topic, 3)
	second.ack(topic, 3)
	edgetest.WaitFor(t, "the cursor", func() error {
		if c := w.store.Cursor("client:ann", session, topic); c.GetFloor() != 3 {
			return fmt.Errorf("%v", c)
		}
		return nil
	})
	// The same edge again: the newer connection has it.
	third := w.client(e2, hello())
	if err := second.ended(); err.GetCode() != wirev1.Code_CODE_SESSION_TAKEN_OVER {
		t.Errorf("the second connection ended with %v", err)
	}
	third.subscribe(sub)
	return true
}

func (e *Edge) acks() (n uint64) {
	for _, l := range e.loops {
		n += l.Stats().Acks
	}
	return n
}

func TestPlannedStopLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, stop := w.edge("e1")
	c := w.client(e, &wirev1.Hello{ClientId: "ann", Session: "phone"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_SESSION})
	w.router.Send(w.store.Publish("room/1", 2)...)
	c.messages("room/1", 1, 2)
	c.ack("room/1", 1)
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	goAway := &wirev1.GoAway{}
	c.read(wirev1.FrameType_FRAME_TYPE_GO_AWAY, goAway)
	if goAway.GetCode() != wirev1.Code_CODE_DRAINING {
		t.Errorf("%v", goAway)
	}
	c.ended()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	edgetest.WaitFor(t, "the last digest", func() error { // NATS may have it still
		if d := w.router.Digest(); !d.GetLeaving() {
			return fmt.Errorf("%v", d)
		}
		return nil
	})
	if cur := w.store.Cursor("client:ann", "phone", "room/1"); cur.GetFloor() != 1 {
		t.Errorf("stored %v", cur)
	}
	if edge, _ := w.store.Holder("client:ann", "phone"); edge != "" {
		t.Errorf("still held by %s", edge)
	}
}

// A container's name for itself is no name to others: where it is told of an address, that is what
// top and doctor hear.
func TestAnAddressThatOthersReachIsAnnounced(t *testing.T) {
	w := newWorld(t)
	s := w.settings("e1")
	s.Listen, s.HTTP, s.BackendAddress = ":0", ":0", "192.0.2.7:7400"
	e, _ := w.edgeWith(s)
	_, port, err := net.SplitHostPort(e.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	var d meshv1.EdgeDigest
	e.about()(&d)
	if d.GetHttpAddress() != "192.0.2.7:"+port || d.GetAddress() != "192.0.2.7:7400" {
		t.Errorf("others hear of %s and %s", d.GetHttpAddress(), d.GetAddress())
	}
}

func TestMetricsNameCodesAndLag(t *testing.T) {
	w := newWorld(t)
	e, _ := w.edge("e1")
	c := w.client(e, &wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "a//b"})
	c.read(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{})
	edgetest.WaitFor(t, "/metrics", func() error {
		resp, err := http.Get("http://" + e.HTTPAddr() + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %w: %s", resp.StatusCode, err, body)
		}
		for _, line := range []string{
			"pushmesh_edge_connections 1", "pushmesh_edge_interest_filters 1", "pushmesh_edge_routers 1", `pushmesh_edge_refused_total{code="BAD_TOPIC"} 1`,
			`pushmesh_edge_loop_lag_seconds{of="last_100",quantile="0.99"}`, `pushmesh_edge_head_checks_total{reason="gap"}`,
			`pushmesh_edge_send_mode{mode="` + string(e.sendMode()) + `"} `,
		} {
			if !strings.Contains(string(body), line) {
				return fmt.Errorf("no %q", line)
			}
		}
		return nil
	})
}

func TestSettingsReportEveryFault(t *testing.T) {
	s := Settings{ID: "a b", Listen: "nowhere", Loops: 65, Grace: time.Second, Drain: 2 * time.Second, Stores: []string{"x"}, Advertise: "y", Send: "pigeon", Poller: "carrier", ShedLag: -1}
	err := s.Check()
	for _, flag := range []string{"id", "--listen", "--loops", "--drain", "--stores", "--advertise", "--send", "--poller", "--shed-lag"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not named in %v", flag, err)
		}
	}
	if err := (&Settings{Open: true, Flags: tierauth.Flags{PlainTiers: true}}).Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// namesEpoch says that a Progress is the word of a topic's epoch.
func namesEpoch(progress []byte) bool {
	var p wirev1.Progress
	return proto.Unmarshal(progress, &p) == nil && p.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED
}
