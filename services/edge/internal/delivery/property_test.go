package delivery

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// follower checks what one connection is delivered: for each (subscription, topic) every first
// delivery once and in order.
type follower struct {
	*client
	next map[string]uint64 // by subscription and topic: the seq that must come next
}

func key(sub uint32, name string) string { return fmt.Sprint(sub, " ", name) }

// check looks at the frames that came. Plain subscriptions count as subscription 0.
func (f *follower) check(w *world) {
	f.take()
	for _, fr := range f.got {
		switch m := fr.m.(type) {
		case *wirev1.Subscribed:
			f.subscribed(m)
		case *wirev1.Message:
			f.message(w, m)
		case *wirev1.Error:
			w.t.Fatalf("%s", fr.text())
		case *wirev1.Progress:
			w.t.Fatalf("nothing was retained or expired: %s", fr.text())
		}
	}
	f.got = nil
}

// subscribed learns where the plain subscriptions begin, unless one of them stands there already. A
// topic that has no position appears later and begins at 1.
func (f *follower) subscribed(m *wirev1.Subscribed) {
	begin := func(name string, at uint64) {
		if k := key(0, name); f.next[k] == 0 {
			f.next[k] = at
		}
	}
	switch m.GetId() {
	case 1:
		begin("room/0", m.GetHead()+1)
	case 2:
		for _, p := range m.GetPositions() {
			begin(p.GetTopic(), p.GetHead()+1)
		}
		for _, name := range roomTopics {
			begin(name, 1)
		}
	}
}

func (f *follower) message(w *world, m *wirev1.Message) {
	if m.GetAttempt() > 0 || m.GetSeq() == 0 {
		return
	}
	sub := uint32(0)
	if len(m.GetSubs()) > 0 {
		sub = m.GetSubs()[0]
	}
	k := key(sub, m.GetTopic())
	want := max(f.next[k], 1)
	if m.GetSeq() != want {
		w.t.Fatalf("subscription %s got %d, want %d", k, m.GetSeq(), want)
	}
	f.next[k] = want + 1
}

var roomTopics = []string{"room/0", "room/1", "room/2"}

// Whatever is lost on the way to the loop, however slowly clients read and ACK: every subscription
// sees every durable message once and in order.
func TestEveryMessageOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: rapid.IntRange(1, 12).Draw(t, "queue"), ReadBytes: rapid.IntRange(50, 400).Draw(t, "read")})
		w.keep(t)
		var all []*follower
		sent := map[string]uint64{}
		publish := func(live bool) {
			name := fmt.Sprintf("room/%d", rapid.IntRange(0, 2).Draw(t, "topic"))
			msgs := w.mesh.Append(name, payloads(0, rapid.IntRange(1, 4).Draw(t, "run"))...)
			sent[name] += uint64(len(msgs))
			if live {
				w.mesh.Live(msgs...)
			}
		}
		for range rapid.IntRange(1, 5).Draw(t, "before") {
			publish(false)
		}
		for range rapid.IntRange(1, 3).Draw(t, "connections") {
			c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: rapid.Uint32Range(1, 8).Draw(t, "window")})
			all = append(all, &follower{client: c, next: map[string]uint64{}})
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			f := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			switch rapid.IntRange(0, 10).Draw(t, "op") {
			case 10:
				w.mesh.Away(rapid.SampledFrom(roomTopics).Draw(t, "whose owner"), rapid.Bool().Draw(t, "is away"))
			case 0, 1, 2, 3:
				publish(true)
			case 4:
				publish(false) // lost on the way
			case 5:
				f.slow = !f.slow
			case 6:
				f.subscribeAny(t)
			case 7:
				f.ackAll()
			case 8:
				w.pass(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			case 9:
				w.settle()
			}
			f.check(w)
		}
		for _, name := range roomTopics {
			w.mesh.Away(name, false)
		}
		w.pass(time.Second) // failed reads are tried again
		for name := range sent {
			// the last message of each topic is heard, so that gaps before it show
			w.mesh.Send(name, "last")
			sent[name]++
		}
		for _, f := range all {
			f.slow = false
		}
		total := uint64(100)
		for _, n := range sent {
			// a queue of one takes a round for each message of each kind of subscription
			total += 2 * n
		}
		for range total {
			w.settle()
			for _, f := range all {
				f.check(w)
				f.ackAll()
			}
		}
		for _, f := range all {
			f.complete(w, sent)
		}
	})
}

// subscribeAny adds one of the kinds of subscription that is not there yet: 1 and 2 plain, 3 from
// the beginning.
func (f *follower) subscribeAny(t *rapid.T) {
	m := &wirev1.Subscribe{Id: rapid.Uint32Range(1, 3).Draw(t, "sub"), Ack: rapid.Bool().Draw(t, "ack")}
	if f.w.h.conns.Get(f.slot).SubByID(m.GetId()) != nil {
		return
	}
	switch m.GetId() {
	case 1:
		m.Filter = "room/0"
	case 2:
		m.Filter = "room/#"
	case 3:
		m.Filter, m.Start = "room/+", wirev1.Start_START_EARLIEST
	}
	f.subscribe(m)
}

// ackAll ACKs everything that is un-ACKed in each topic.
func (f *follower) ackAll() {
	for _, name := range roomTopics {
		f.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: name, Seq: 1 << 40, Through: true}}})
	}
}

func (f *follower) complete(w *world, sent map[string]uint64) {
	c := f.w.h.conns.Get(f.slot)
	for name, n := range sent {
		if s := c.SubByID(3); s != nil && f.next[key(3, name)] != n+1 {
			w.t.Fatalf("subscription 3 is at %d of %d in %s", f.next[key(3, name)], n+1, name)
		}
		if c.SubByID(2) != nil && f.next[key(0, name)] != n+1 {
			w.t.Fatalf("plain subscriptions are at %d of %d in %s", f.next[key(0, name)], n+1, name)
		}
	}
	if c.SubByID(1) != nil && f.next[key(0, "room/0")] != sent["room/0"]+1 && sent["room/0"] > 0 {
		w.t.Fatalf("plain subscriptions are at %d of %d in room/0", f.next[key(0, "room/0")], sent["room/0"]+1)
	}
	if got := w.h.Stats().Unacked; got < 0 {
		w.t.Fatalf("%d un-ACKed", got)
	}
}

// spot is one message of one topic.
type spot struct {
	name string
	seq  uint64
}

// A session that comes and goes sees every message, and after its ACKs are stored none of them
// again.
func TestSessionSeesEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: rapid.IntRange(1, 12).Draw(t, "queue")})
		w.keep(t)
		filter := rapid.SampledFrom([]string{"room/1", "room/+"}).Draw(t, "filter")
		names := []string{"room/1"}
		if filter != names[0] {
			names = roomTopics
		}
		f := &holder{w: w, filter: filter, seen: map[spot]bool{}, acked: map[spot]bool{}}
		sent := map[string]uint64{}
		f.connect()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "topic")
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1:
				w.mesh.Send(name, "x")
				sent[name]++
			case 2:
				w.mesh.Append(name, "lost")
				sent[name]++
			case 3, 4:
				f.ackOne(rapid.IntRange(0, 100).Draw(t, "which"))
			case 5:
				f.unacked = nil
				w.h.Gone(f.c.slot)
				w.settle()
				f.connect()
			case 6:
				w.pass(time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond)
			case 7:
				w.mesh.Release()
			}
			f.look()
		}
		w.mesh.Release()
		total := uint64(0)
		for _, name := range names {
			w.mesh.Send(name, "last")
			sent[name]++
			total += sent[name]
		}
		for n := 0; uint64(len(f.seen)) < total; n++ {
			if n > 1000 {
				t.Fatalf("seen %d of %d", len(f.seen), total)
			}
			f.look()
			f.ackOne(0)
			w.settle()
		}
		for name, n := range sent {
			for seq := uint64(1); seq <= n; seq++ {
				if !f.seen[spot{name, seq}] {
					t.Fatalf("%s/%d never came", name, seq)
				}
			}
		}
	})
}

// holder is a client with a session.
type holder struct {
	w       *world
	filter  string
	topK    uint32
	c       *client
	unacked []spot
	seen    map[spot]bool
	acked   map[spot]bool
}

// connect takes the session; its first positions may be slow to be stored.
func (f *holder) connect() {
	f.c = f.w.dial()
	f.w.mesh.HoldSaved()
	f.c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s", HeartbeatMs: 600_000, ReceiveWindow: 5})
	f.c.subscribe(&wirev1.Subscribe{Id: 1, Filter: f.filter, RankTopK: f.topK, Ack: true, Start: wirev1.Start_START_SESSION})
}

func (f *holder) look() {
	f.c.take()
	for _, fr := range f.c.got {
		m, ok := fr.m.(*wirev1.Message)
		if !ok {
			continue
		}
		at := spot{m.GetTopic(), m.GetSeq()}
		if f.acked[at] {
			f.w.t.Fatalf("%v came again after its ACK", at)
		}
		f.seen[at] = true
		f.unacked = append(f.unacked, at)
	}
	f.c.got = nil
}

func (f *holder) ackOne(which int) {
	if len(f.unacked) == 0 {
		return
	}
	i := which % len(f.unacked)
	at := f.unacked[i]
	f.c.ack(at.name, at.seq, false)
	f.acked[at] = true
	f.unacked = append(f.unacked[:i], f.unacked[i+1:]...)
}

// FuzzFeed throws bytes at a connection, in pieces; the hub neither panics nor loses count of what
// it holds.
func FuzzFeed(f *testing.F) {
	hello := []byte{0, 0, 2, 1, 8, 1}
	f.Add(append(hello, 0, 0, 10, 3, 8, 1, 18, 6, 'r', 'o', 'o', 'm', '/', '#'), byte(3))
	f.Add(append(hello, 0, 0, 12, 8, 10, 10, 10, 6, 'r', 'o', 'o', 'm', '/', '1', 16, 1), byte(1))
	f.Add([]byte("GET / HTTP/1.1"), byte(7))
	f.Fuzz(func(t *testing.T, in []byte, step byte) {
		w := newWorld(t, Limits{MaxFrame: 512})
		c := w.dial()
		for len(in) > 0 && w.h.Gen(c.slot) == c.gen && !c.ended {
			n := min(int(step)%16+1, len(in))
			c.bytes(in[:n])
			c.got = nil
			in = in[n:]
			w.mesh.Live(w.mesh.Append("room/1", "x")...)
			w.mesh.Live(upstreamtest.Encode("room/1", 0, 0, "y"))
			w.settle()
		}
		w.pass(3 * time.Second)
		if !c.ended {
			w.h.Gone(c.slot)
		}
		w.settle()
		w.h.Dirty(nil)
		if s := w.h.Stats(); s.Connections != 0 || s.Subscriptions != 0 || s.QueuedBytes != 0 || s.Unacked != 0 {
			t.Fatalf("something is left: %+v", s)
		}
		if w.mesh.Joins != w.mesh.Leaves || w.h.topics.ByName.Len() != 0 || w.h.wildcards.index.Len() != 0 {
			t.Fatalf("%d joins, %d leaves, %d topics, %d filters", w.mesh.Joins, w.mesh.Leaves, w.h.topics.ByName.Len(), w.h.wildcards.index.Len())
		}
	})
}
