package delivery

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// asker holds the first Save of a session's subscription, so that its answer can be looked at.
type asker struct{ many }

func (a *asker) Attach(conn exchange.Conn, _, _ string, _ uint32, _ uint64, _ string) {
	a.h.Event(exchange.Attached{Conn: conn, Generation: 1})
}

func (a *asker) Save(exchange.Conn, uint32, *meshv1.SessionWrite, bool) {}

func (a *asker) connect(t *testing.T) *state.Conn {
	t.Helper()
	slot, _ := a.h.Open()
	a.h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Session: "inbox"}), 1)
	return a.h.conns.Get(slot)
}

func newAsker(t tester, heads int) *asker {
	a := &asker{many{heads: heads}}
	a.h = newHub(t, Config{Mesh: a, PolicyFor: policy.NewTable(nil).For})
	a.h.SetTime(1, wallStart)
	return a
}

// answerOf is the answer in the making, as the client would decode it.
func answerOf(t *testing.T, s *state.Subscription) *wirev1.Subscribed {
	t.Helper()
	return subscribedOf(t, s.Answer.Frame(s.ID))
}

// sentAnswer is the answer that the connection is owed.
func sentAnswer(t *testing.T, c *state.Conn, id uint32) *wirev1.Subscribed {
	t.Helper()
	for i := range c.Out.Len() {
		it := c.Out.At(i)
		if it.Kind() != sendq.Answer || wirev1.FrameType(it.Bytes()[wire.HeaderSize-1]) != wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
			continue
		}
		if m := subscribedOf(t, it.Bytes()); m.GetId() == id {
			return m
		}
	}
	t.Fatalf("%d is not answered", id)
	return nil
}

func subscribedOf(t *testing.T, frame []byte) *wirev1.Subscribed {
	t.Helper()
	m := &wirev1.Subscribed{}
	if n, ft, ok := wire.Header(frame); !ok || n != len(frame)-wire.HeaderSize || ft != wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
		t.Fatalf("a header of %d bytes and type %v for %d bytes", n, ft, len(frame))
	}
	if err := proto.Unmarshal(frame[wire.HeaderSize:], m); err != nil {
		t.Fatal(err)
	}
	return m
}

// stepUntil takes the smallest slices of work until seen, and checks that none puts more than a
// slice into the answer.
func (a *asker) stepUntil(t *testing.T, s *state.Subscription, seen func() bool) {
	t.Helper()
	told := func() int {
		if s.Pending == nil {
			return 0
		}
		return len(answerOf(t, s).GetPositions())
	}
	for n, before := 0, told(); !seen(); n++ {
		a.h.Work(1)
		now := told()
		if now-before > teardownSlice {
			t.Fatalf("%d positions were put into the answer in one slice", now-before)
		}
		if before = max(before, now); n > 10_000 {
			t.Fatal("it never comes so far")
		}
	}
}

// A thousand positions are answered in slices: what is known, what lies behind the log's beginning,
// and topics that no log knows.
func TestManyPositionsAreAnsweredInSlices(t *testing.T) {
	const known, asked, gone = 600, 900, 300 // 600 to 899 are not known
	a := newAsker(t, known)
	c := a.connect(t)
	m := &wirev1.Subscribe{Id: 1, Filter: "room/+", Start: wirev1.Start_START_AFTER_SEQ}
	for i := range asked {
		p := &wirev1.Position{Topic: fmt.Sprintf("room/%d", i), Epoch: upstreamtest.BaseEpoch, Seq: uint64(i % 2)}
		m.Positions = append(m.Positions, p)
	}
	a.h.Feed(c.Slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m), 1)
	s := c.Subs.At(0)
	a.stepUntil(t, s, func() bool { return s.Active })
	answer := sentAnswer(t, c, 1)
	if n := len(answer.GetPositions()); n != known+gone/2 {
		// who had heard nothing of a topic lacks nothing
		t.Fatalf("%d positions are answered", n)
	}
	if answer.GetRecovered() {
		t.Fatal("topics that no log knows are said to be recovered")
	}
	for i, p := range answer.GetPositions() {
		// the logs are empty: seq 1 was rewound
		name, recovered, epoch := fmt.Sprintf("room/%d", i), i%2 == 0, uint64(upstreamtest.BaseEpoch)
		if i >= known {
			name, recovered, epoch = fmt.Sprintf("room/%d", known+2*(i-known)+1), false, 0
		}
		if p.GetTopic() != name || p.GetRecovered() != recovered || p.GetEpoch() != epoch {
			t.Fatalf("the answer's position %d is %v", i, p)
		}
	}
	if n := c.Tracks.Len(); n != known {
		t.Fatalf("%d topics", n)
	}
}

// A track that is shared and goes on while the answer is made is answered as it stands then, and
// goes no further until the subscription shares it.
func TestAnswerTellsWhereSharedTracksAre(t *testing.T) {
	const topics = 200
	a := newAsker(t, topics)
	c := a.connect(t)
	a.h.Feed(c.Slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+"}), 1)
	a.stepUntil(t, c.Subs.At(0), func() bool { return c.Subs.At(0).Active })
	a.h.Feed(c.Slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room/#"}), 1)
	s := c.Subs.At(1)
	a.stepUntil(t, s, func() bool { return len(answerOf(t, s).GetPositions()) > topics/2 })
	// one that is in the answer, and one that is not
	told, other := c.Tracks.At(0), c.Tracks.At(topics-1)
	other.Pos = 9
	for _, track := range []*state.Track{told, other} {
		track.Behind = true
		a.h.replay.enqueue(track)
	}
	if told.Runs || !other.Runs {
		t.Fatalf("who is in the answer goes on: %v; who is not: %v", told.Runs, other.Runs)
	}
	a.stepUntil(t, s, func() bool { return s.Active && toldTracks(c) == 0 })
	answer := sentAnswer(t, c, 2)
	if told.Told.Any() || !told.Runs && !told.Reading {
		t.Fatal("who is in the answer does not go on once it was sent")
	}
	for i, p := range answer.GetPositions() {
		want := map[int]uint64{topics - 1: 9}[i]
		if p.GetHead() != want || p.GetTopic() != c.Tracks.At(i).Topic.Name() {
			t.Fatalf("position %d is %v, want head %d", i, p, want)
		}
	}
	if n := len(answer.GetPositions()); n != topics {
		t.Fatalf("%d positions", n)
	}
}

// A live subscription with a content filter or a ranking has a position of its own: it begins at
// the head, also where one with wildcards on its connection has heard nothing of the topic.
func TestLiveWithAFilterOrARankingBeginsAtTheHead(t *testing.T) {
	for name, m := range map[string]*wirev1.Subscribe{
		"where": {Id: 2, Filter: "feed/1", Where: "payload > 0"}, "where and wildcards": {Id: 2, Filter: "feed/#", Where: "payload > 0"},
		"ranked": {Id: 2, Filter: "feed/1", RankTopK: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := rankedWorld(t, Limits{}, 0)
			c := w.connect(&wirev1.Hello{})
			w.mesh.Send("feed/1", "1", "2", "3")
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "feed/+"})
			c.texts()
			c.subscribe(m)
			w.rankAll()
			if texts := c.texts(); len(texts) != 1 || !strings.HasPrefix(texts[0], "Subscribed 2") {
				t.Fatalf("the client is sent %q, want Subscribed alone", texts)
			}
			w.mesh.Send("feed/1", "4")
			w.rankAll()
			if texts := c.texts(); len(texts) != 2 {
				t.Fatalf("the client is sent %q, want one message for each subscription", texts)
			}
		})
	}
}
