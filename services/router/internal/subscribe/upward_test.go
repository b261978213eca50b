package subscribe

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// upwardOf is one whose goroutine does not run: what waits is looked at.
func upwardOf(t *testing.T) *toEdge {
	near, far := net.Pipe()
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return newUpward(near, patience)
}

// waiting takes the frames that wait, as text.
func (u *toEdge) waiting(t *testing.T) (frames []string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.seal(); err != nil {
		t.Fatal(err)
	}
	b := u.buf
	u.buf = nil
	for len(b) > 0 {
		n, kind, ok := wire.Header(b)
		if !ok {
			t.Fatal("half a frame")
		}
		body := b[wire.HeaderSize : wire.HeaderSize+n]
		b = b[wire.HeaderSize+n:]
		if kind != frameAck {
			frames = append(frames, kind.String())
			continue
		}
		var m wirev1.Ack
		if err := proto.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		s := "ack"
		for _, e := range m.GetEntries() {
			s += fmt.Sprintf(" %s/%d/%v", e.GetTopic(), e.GetSeq(), e.GetThrough())
		}
		frames = append(frames, s)
	}
	return frames
}

func TestACKsAreGathered(t *testing.T) {
	u := upwardOf(t)
	one := func(topic string, seq uint64, through bool) *wirev1.Ack_Entry {
		return &wirev1.Ack_Entry{Topic: topic, Seq: seq, Through: through}
	}
	u.ack([]*wirev1.Ack_Entry{one("a", 3, true), one("b", 1, true), one("a", 2, false)})
	u.ack([]*wirev1.Ack_Entry{one("a", 5, true), one("a", 4, true), {Topic: "a", Seq: 9, Through: true, Sub: 2}, {Topic: "a", Seq: 8, Through: true, Epoch: 7}})
	if err := u.frame(frameNack, &wirev1.Nack{Topic: "a", Seq: 6}); err != nil {
		t.Fatal(err)
	}
	u.ack([]*wirev1.Ack_Entry{one("a", 7, true)})
	want := []string{"ack a/5/true b/1/true a/2/false a/9/true a/8/true", "FRAME_TYPE_NACK", "ack a/7/true"}
	if got := u.waiting(t); !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestWhatWaitsForAnEdgeIsBounded(t *testing.T) {
	u := upwardOf(t)
	long := string(make([]byte, 255))
	n := 0
	for ; !u.full(); n++ {
		u.ack([]*wirev1.Ack_Entry{{Topic: long, Seq: uint64(n)}})
	}
	if n > 2*maxUpward/len(long) {
		t.Errorf("%d ACKs wait", n)
	}
	for i := range uint64(100_000) {
		u.ack([]*wirev1.Ack_Entry{{Topic: "a", Seq: i, Through: true}})
	}
	if len(u.acks) != n+1 {
		t.Errorf("%d entries for one topic that is ACKed through", len(u.acks)-n)
	}
	u.failed = true
	if u.ack([]*wirev1.Ack_Entry{{Topic: "b"}}); u.full() || len(u.acks) != n+1 {
		t.Error("what is lost anyway is kept")
	}
}

func TestOwnPings(t *testing.T) {
	u := upwardOf(t)
	u.mark = 5 << 32
	u.ping()
	if !u.own(5<<32|1) || u.own(1) || u.own(6<<32|1) {
		t.Error("a Pong is taken for another's")
	}
}
