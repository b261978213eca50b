package promise

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// each promise that is broken on purpose must be found broken, by the same play that finds them
// kept.
func sabotaged(t *testing.T, o procmesh.Options, edges func(*procmesh.Mesh) []string, sabotage func(context.Context, *procmesh.Mesh, *Play), want ...string) {
	t.Helper()
	m := procmesh.Start(t, o)
	play := &Play{Routers: m.RouterAddrs, Edges: m.EdgeAddrs, Seed: seed(t), Logf: t.Logf, Known: m.KnowNamespaces, Rate: 200, Settle: 10 * time.Second}
	if edges != nil {
		play.Edges = edges(m)
	}
	v := judged(t, play, func(ctx context.Context) { sabotage(ctx, m, play) })
	t.Log(v)
	for _, promise := range want {
		if v.Counts[promise] == 0 {
			t.Errorf("nobody noticed that %s was broken", promise)
		}
	}
}

// answered waits until so many more messages were answered.
func answered(t *testing.T, p *Play, more int) {
	t.Helper()
	_, before := p.Offered()
	procmesh.Await(t, "messages are answered", func() bool { _, n := p.Offered(); return n >= before+more })
}

// without runs do while no edge is there.
func without(t *testing.T, m *procmesh.Mesh, do func()) {
	t.Helper()
	for _, e := range m.Edges {
		e.Kill()
	}
	do()
	for _, e := range m.Edges {
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
}

// offered waits until a message that is offered from now on was answered; of topic, unless that is
// "".
func offered(t *testing.T, p *Play, topic string) (m Published) {
	t.Helper()
	began, _ := p.Offered()
	procmesh.Await(t, "a message offered later is answered", func() bool {
		later := p.offers.list()[began:]
		i := slices.IndexFunc(later, func(o Published) bool { return o.Answered && (topic == "" || o.Topic == topic) })
		if i >= 0 {
			m = later[i]
		}
		return i >= 0
	})
	return m
}

func TestARunTakenOutOfTheLogIsNoticed(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	sabotaged(t, procmesh.Options{Edges: 2, DB: db}, nil, func(_ context.Context, m *procmesh.Mesh, p *Play) {
		answered(t, p, 500)
		without(t, m, func() {
			gone := offered(t, p, "")
			if pgtest.Exec(t, db, `DELETE FROM pushmesh.log_day WHERE topic = $1 AND $2 BETWEEN first_seq AND last_seq`, gone.Topic, gone.Seq) != 1 {
				t.Fatalf("%s: seq %d was answered and is in no run of the log", gone.Topic, gone.Seq)
			}
			offered(t, p, gone.Topic) // the hole has an end
		})
	}, Durable, Numbered)
}

func TestACursorMovedAheadIsNoticed(t *testing.T) {
	t.Parallel()
	sabotaged(t, procmesh.Options{Edges: 2, DB: pgtest.URL(t)}, nil, func(ctx context.Context, m *procmesh.Mesh, p *Play) {
		answered(t, p, 500)
		without(t, m, func() {
			skipTo(ctx, t, m.StoreAddrs[0], "exact-1", offered(t, p, "")) // nobody has seen it
		})
	}, Complete)
}

// skipTo has the store believe that a session without a connection has ACKed everything up to a
// message. It holds the session for this, as an edge would, so that what a killed edge wrote last
// can't come later and take it back.
func skipTo(ctx context.Context, t *testing.T, storeAddr, client string, upTo Published) {
	t.Helper()
	conn, err := grpc.NewClient(storeAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	store := meshv1.NewStoreServiceClient(conn)
	user, name := "client:"+client, "promise"
	held, err := store.AttachSession(ctx, &meshv1.AttachSessionRequest{User: user, Name: name, EdgeId: "saboteur", ConnectionId: 1})
	if err != nil || !held.GetResumed() {
		t.Fatalf("%s has no session: %v %v", client, held, err)
	}
	res, err := store.WriteCursors(ctx, &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{{
		User: user, Name: name, Generation: held.GetGeneration(), Detach: true,
		Cursors: []*meshv1.SessionCursor{{Topic: upTo.Topic, Epoch: upTo.Epoch, Floor: upTo.Seq}},
	}}})
	if err != nil || !slices.Equal(res.GetCodes(), []wirev1.Code{wirev1.Code_CODE_OK}) {
		t.Fatalf("the cursor was not moved: %v %v", res, err)
	}
}

func TestALinkThatCheatsIsNoticed(t *testing.T) {
	t.Parallel()
	var cheated atomic.Int32
	alter := func() func([]byte) []byte { return (&cheat{all: &cheated}).pass }
	edges := func(m *procmesh.Mesh) []string { return []string{tamper(t, m.EdgeAddrs[0], alter)} }
	sabotaged(t, procmesh.Options{}, edges, func(context.Context, *procmesh.Mesh, *Play) {
		// Three connections are members of a group that has no order: where another cheated too, it
		// shows.
		procmesh.Await(t, "four connections were cheated", func() bool { return cheated.Load() >= 4 })
	}, Authentic, FirstInOrder, Redelivery)
}

// cheat of one connection: it repeats the 50th first delivery, changes a byte of the 100th, and
// lets the 150th and the next one of its topic change places.
type cheat struct {
	all   *atomic.Int32 // counts cheats who are through
	n     int
	held  []byte
	topic string
	seq   uint64
	over  bool
}

func (c *cheat) pass(frame []byte) []byte {
	var m wirev1.Message
	if err := proto.Unmarshal(frame[wire.HeaderSize:], &m); err != nil {
		panic(err) // an edge's own frame
	}
	switch {
	case c.over:
	case c.held != nil && m.GetTopic() == c.topic && m.GetSeq() == c.seq:
		// the edge has lost patience: another will do
		c.held = nil
	case m.GetAttempt() > 0:
	case c.held != nil && m.GetTopic() == c.topic:
		c.over = true
		c.all.Add(1)
		return append(frame, c.held...)
	default:
		return c.first(frame, &m)
	}
	return frame
}

// first delivery of a message.
func (c *cheat) first(frame []byte, m *wirev1.Message) []byte {
	c.n++
	switch {
	case c.n == 50:
		return append(frame, frame...)
	case c.n == 100:
		m.Payload[len(m.Payload)-1] ^= 1
		changed, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_MESSAGE, m)
		if err != nil {
			panic(err)
		}
		return changed
	case c.n >= 150 && c.held == nil:
		c.held, c.topic, c.seq = frame, m.GetTopic(), m.GetSeq()
		return nil
	}
	return frame
}
