package groups

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// peer plays the edge b by hand, against a real edge a.
type peer struct {
	w *world
	a *edge

	mu          sync.Mutex
	away        bool
	incarnation uint64
	heard       []*meshv1.GroupOp
}

func newPeer(t *testing.T) *peer {
	b := &peer{w: newWorld(t, 1, 0, "a"), incarnation: 1}
	b.a = b.w.edges["a"]
	b.a.cfg.Request = b.request
	return b
}

// request takes what a says to b: whatever number a frame has, no process that came back refuses
// it, as none refuses a first one.
func (b *peer) request(ctx context.Context, _ string, frame []byte) ([]byte, error) {
	f := &meshv1.GroupFrame{}
	if err := proto.Unmarshal(frame, f); err != nil {
		return nil, err
	}
	b.mu.Lock()
	if !b.away {
		defer b.mu.Unlock()
		b.heard = append(b.heard, f.GetOps()...)
		return proto.Marshal(&meshv1.GroupFrameReply{EdgeIncarnation: b.incarnation})
	}
	b.mu.Unlock()
	<-ctx.Done()
	return nil, errors.New("away")
}

// returns has b answer from now on, as the process with a number.
func (b *peer) returns(incarnation uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away, b.incarnation = false, incarnation
}

func (b *peer) leaves() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = true
}

// says hands a the first frame of a link.
func (b *peer) says(incarnation, link uint64, ops ...*meshv1.GroupOp) {
	b.follows(incarnation, link, 1, ops...)
}

// follows hands a the nth frame of a link.
func (b *peer) follows(incarnation, link, n uint64, ops ...*meshv1.GroupOp) {
	for _, op := range ops {
		op.Group, op.Filter = "g", topicName
	}
	frame, err := proto.Marshal(&meshv1.GroupFrame{EdgeId: "b", EdgeIncarnation: incarnation, Link: link, N: n, Ops: ops})
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.a.Receive(frame, func([]byte) error { return nil })
	synctest.Wait()
}

func joins(id uint64) *meshv1.GroupOp {
	return &meshv1.GroupOp{Member: id, Op: &meshv1.GroupOp_Join{Join: &meshv1.GroupJoin{Window: 5}}}
}

// members of b, as a's dispatcher knows them.
func (b *peer) members() (ids []uint64) {
	done := make(chan struct{})
	b.a.ops.Do(func() {
		defer close(done)
		for _, d := range b.a.dispatchers {
			for _, h := range d.core.Holders(0, 100) {
				if h.Member.Edge == "b" {
					ids = append(ids, h.Member.ID)
				}
			}
		}
	})
	<-done
	slices.Sort(ids)
	return ids
}

// toldOf counts what b was told of a member.
func (b *peer) toldOf(id uint64, is func(*meshv1.GroupOp) bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, op := range b.heard {
		if op.GetMember() == id && is(op) {
			n++
		}
	}
	return n
}

func isLeave(op *meshv1.GroupOp) bool { return op.GetLeave() != nil }

// What an edge said before it died may be taken up after it has come back: while a dispatcher waits
// for the store, its members' edges are not watched. Its new process has none of those members.
func TestMembersOfAProcessThatDiedAreGone(t *testing.T) {
	t.Run("it answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newPeer(t)
			defer b.w.stop()
			b.w.join("a", 1)
			pass(time.Second)
			b.leaves()
			b.says(1, 11, joins(7))
			pass(deadAfter / 2)
			b.returns(2) // it has been told that 7 has joined, which it knows nothing of
			b.w.publish(10)
			if b.w.await(5 * time.Second); len(b.members()) > 0 {
				t.Errorf("members of b: %v", b.members())
			}
		})
	})
	t.Run("it speaks first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newPeer(t)
			defer b.w.stop()
			b.w.join("a", 1)
			pass(time.Second)
			b.leaves()
			b.says(1, 11, joins(7))
			b.says(2, 12, joins(8))
			b.returns(2)
			pass(time.Second)
			if got := b.members(); !slices.Equal(got, []uint64{8}) {
				t.Errorf("members of b: %v", got)
			}
		})
	})
}

// An edge that begins its link anew has lost what it had yet to say, such as that a member has
// left.
func TestALinkThatBeginsAnewIntroducesItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPeer(t)
		defer b.w.stop()
		b.w.join("a", 1)
		pass(time.Second)
		b.says(1, 11, joins(7), joins(8))
		pass(time.Second)
		b.says(1, 12, joins(8))
		pass(time.Second)
		if got := b.members(); !slices.Equal(got, []uint64{8}) {
			t.Errorf("members of b: %v", got)
		}
	})
}

// An edge that looks for the dispatcher again, as it heard of an end that is long past, tells the
// one that it knew of members that leave meanwhile: it may dispatch.
func TestAMemberThatLeavesBetweenDispatchersIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPeer(t)
		defer b.w.stop()
		b.w.mu.Lock()
		b.w.holder, b.w.until = "b", time.Now().Add(time.Hour)
		b.w.mu.Unlock()
		b.w.join("a", 1)
		pass(time.Second)
		id := b.a.cfg.Incarnation + 1
		if b.toldOf(id, func(op *meshv1.GroupOp) bool { return op.GetJoin() != nil }) != 1 {
			t.Fatal("b was not told of the member")
		}
		b.w.mu.Lock()
		b.a.gone = true // has no store
		b.w.mu.Unlock()
		b.says(1, 11, &meshv1.GroupOp{Op: &meshv1.GroupOp_Gone{Gone: &meshv1.GroupGone{}}})
		b.a.LeaveGroup(exchange.Conn{Slot: 1}, 1)
		pass(time.Second)
		if n := b.toldOf(id, isLeave); n != 1 {
			t.Errorf("b was told %d times that the member has left", n)
		}
	})
}

// A dispatcher that hands a message to a member that is none, or asks what it has, is told so, or
// its messages would stay with it for good.
func TestMessagesOfAStrangerGoBack(t *testing.T) {
	deliver := &meshv1.GroupOp{Member: 7, Op: &meshv1.GroupOp_Deliver{Deliver: &meshv1.GroupDeliver{
		Deliveries: []*meshv1.Delivery{{Topic: topicName, Epoch: 1, Seq: 1}}, Attempts: []uint32{0},
	}}}
	ask := &meshv1.GroupOp{Member: 7, Op: &meshv1.GroupOp_Ask{Ask: &meshv1.GroupAsk{Turn: 1}}}
	for _, op := range []*meshv1.GroupOp{deliver, ask} {
		synctest.Test(t, func(t *testing.T) {
			b := newPeer(t)
			defer b.w.stop()
			b.says(1, 11, op)
			pass(time.Second)
			if n := b.toldOf(7, isLeave); n != 1 {
				t.Errorf("b was told %d times that 7 is none", n)
			}
		})
	}
}

// Whatever has become of a message on the way to a member, its dispatcher asks what the member has,
// and others get what it has not. What was assigned after the question stays with it.
func TestAMemberIsAskedWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPeer(t)
		defer b.w.stop()
		b.w.join("a", 1)
		pass(time.Second)
		b.says(1, 11, joins(7))
		b.w.publish(10)
		pass(8 * time.Second)
		turn := uint64(0)
		n := b.toldOf(7, func(op *meshv1.GroupOp) bool {
			turn = max(turn, op.GetAsk().GetTurn())
			return op.GetAsk() != nil
		})
		if n != 1 || turn == 0 {
			t.Fatalf("asked %d times, at %d", n, turn)
		}
		answer := joins(7)
		answer.GetJoin().Asked, answer.GetJoin().Window = turn, 0
		b.follows(1, 11, 2, answer)
		b.w.await(time.Second)
	})
}

// A member's edge answers with what the member has.
func TestAMemberSaysWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPeer(t)
		defer b.w.stop()
		b.w.mu.Lock()
		b.w.holder, b.w.until, b.w.deaf = "b", time.Now().Add(time.Hour), map[uint32]int{1: 0}
		b.w.mu.Unlock()
		b.w.join("a", 1)
		pass(time.Second)
		id := b.a.cfg.Incarnation + 1
		b.says(1, 11, &meshv1.GroupOp{Member: id, Op: &meshv1.GroupOp_Deliver{Deliver: &meshv1.GroupDeliver{
			Deliveries: []*meshv1.Delivery{{Topic: topicName, Epoch: 1, Seq: 3}}, Attempts: []uint32{2},
		}}})
		b.follows(1, 11, 2, &meshv1.GroupOp{Member: id, Op: &meshv1.GroupOp_Ask{Ask: &meshv1.GroupAsk{Turn: 9}}})
		pass(time.Second)
		if n := b.toldOf(id, func(op *meshv1.GroupOp) bool {
			j := op.GetJoin()
			return j.GetAsked() == 9 && len(j.GetHeld()) == 1 && j.GetHeld()[0].GetSeq() == 3 && j.GetHeld()[0].GetAttempt() == 2
		}); n != 1 {
			t.Errorf("b was told %d times what the member has", n)
		}
		pass(ackTimeout)
	})
}
