package claims

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func answerOf(ref uint64) word { return word{result: &meshv1.ClaimResult{Ref: ref}} }

func pushOf(conn uint64, owner string) word {
	return word{push: &meshv1.ClaimPush{Conn: conn, Owner: owner, State: &wirev1.ClaimState{Resource: "r", Holder: "h"}}}
}

// A node reads what it is told in the order in which it happened: in a message answers come first.
// So a LOST that led to an answer is never behind it. And a message holds as much as that and its
// bound allow.
func TestWhatANodeIsToldKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStream("edge:1", 1, Limits{Unanswered: 10, PushBytes: 1 << 30})
		var put, got []string
		messages, results, pushes := 0, 0, 0 // of the last message
		sent := func() {
			m, err := s.next()
			if err != nil || m == nil {
				t.Fatalf("nothing is to be sent: %v", err)
			}
			if len(m.GetResults()) > maxOps || len(m.GetPushes()) > maxOps {
				t.Fatalf("%d answers and %d pushes in a message", len(m.GetResults()), len(m.GetPushes()))
			}
			for _, r := range m.GetResults() {
				got = append(got, fmt.Sprint("answer ", r.GetRef()))
			}
			for _, p := range m.GetPushes() {
				got = append(got, fmt.Sprint("push ", p.GetConn()))
			}
			messages--
		}
		n := uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "puts") {
			push := rapid.Bool().Draw(t, "pushes")
			var words []word
			for range rapid.SampledFrom([]int{1, 2, 3, 999, 1000, 1001}).Draw(t, "words") {
				n++
				if push {
					words = append(words, pushOf(n, "o"))
					put = append(put, fmt.Sprint("push ", n))
					if messages == 0 || pushes == maxOps {
						messages, results, pushes = messages+1, 0, 0
					}
					pushes++
				} else {
					words = append(words, answerOf(n))
					put = append(put, fmt.Sprint("answer ", n))
					if messages == 0 || pushes > 0 || results == maxOps {
						messages, results, pushes = messages+1, 0, 0
					}
					results++
				}
			}
			if !s.put(words, 0) {
				t.Fatal("too much")
			}
			if messages != len(s.outs) {
				t.Fatalf("%d messages, want %d", len(s.outs), messages)
			}
			if rapid.IntRange(0, 2).Draw(t, "send") == 0 {
				sent()
			}
		}
		for messages > 0 {
			sent()
		}
		if strings.Join(got, ",") != strings.Join(put, ",") {
			t.Fatal("what was told is read in another order")
		}
		if m, err := s.next(); m != nil || err != nil || s.unsent != 0 || s.pushBytes != 0 {
			t.Fatalf("all is sent, and %v, %v, %d answers, %d bytes are left", m, err, s.unsent, s.pushBytes)
		}
	})
}

// What a node may have unanswered is bounded; whatever is answered makes room.
func TestAStreamTakesSoManyOperations(t *testing.T) {
	s := newStream("edge:1", 1, Limits{Unanswered: 3, PushBytes: 1 << 20})
	for i := range 3 {
		if !s.expect() {
			t.Fatalf("operation %d is refused", i+1)
		}
	}
	if s.expect() {
		t.Error("a fourth is taken")
	}
	s.put([]word{answerOf(1), answerOf(2)}, 2)
	if !s.expect() || !s.expect() || s.expect() {
		t.Error("two were answered, and not two are taken")
	}
	if s.full() {
		t.Error("full with two answers to be sent")
	}
	s.put([]word{answerOf(3), answerOf(4), answerOf(5)}, 0)
	if s.full() {
		t.Error("full with five answers to be sent")
	}
	s.put([]word{answerOf(6)}, 0)
	if !s.full() {
		t.Error("six answers are to be sent, twice what may be unanswered, and more is read")
	}
	if _, err := s.next(); err != nil || s.full() {
		t.Errorf("full, and all is sent: %v", err)
	}
	select {
	case <-s.room:
	default:
		t.Error("who waits for room is not told")
	}
}

// A stream that is to end does so once all is answered and sent, and for the first reason.
func TestAStreamEndsOnceAllIsAnswered(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	s := newStream("edge:1", 1, Limits{Unanswered: 3, PushBytes: 1 << 20})
	s.expect()
	s.end(first)
	s.end(second)
	select {
	case <-s.wake:
	default:
		t.Error("who sends is not told")
	}
	if m, err := s.next(); m != nil || err != nil {
		t.Errorf("with one unanswered: %v, %v", m, err)
	}
	s.put([]word{answerOf(1)}, 1)
	if m, err := s.next(); len(m.GetResults()) != 1 || err != nil {
		t.Errorf("the answer: %v, %v", m, err)
	}
	if _, err := s.next(); !errors.Is(err, first) {
		t.Errorf("ends with %v", err)
	}
}

// A stream that fails ends at once, for the first reason, and nothing more is sent on it.
func TestAStreamFailsAtOnce(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	s := newStream("edge:1", 1, Limits{Unanswered: 3, PushBytes: 1 << 20})
	s.expect()
	s.put([]word{pushOf(1, "o")}, 0)
	<-s.wake
	s.fail(first)
	s.fail(second)
	select {
	case <-s.wake:
	default:
		t.Error("who sends is not told")
	}
	if !s.put([]word{answerOf(1)}, 1) || s.unanswered != 0 {
		t.Error("an answer that nobody hears is still an answer")
	}
	if m, err := s.next(); m != nil || !errors.Is(err, first) || len(s.outs) != 0 {
		t.Errorf("%v, %v, %d messages are kept", m, err, len(s.outs))
	}
}

// What waits for a node that does not read is bounded by bytes: each push counts with its names.
// One that is beyond ends the stream, and the node asks for all.
func TestASlowStreamIsBoundedByBytes(t *testing.T) {
	one := weight(pushOf(1, strings.Repeat("x", 100)).push)
	if one < 160+102 || one != weight(pushOf(1, "").push)+100 {
		t.Errorf("a push of 102 bytes of names counts %d", one)
	}
	if got := weight(&meshv1.ClaimPush{State: &wirev1.ClaimState{Resource: "rrr", Holder: "hh"}}); got != weight(&meshv1.ClaimPush{})+5 {
		t.Errorf("names of a state count %d", got)
	}
	s := newStream("edge:1", 1, Limits{Unanswered: 3, PushBytes: 3 * one})
	name := strings.Repeat("x", 100)
	if !s.put([]word{pushOf(1, name), pushOf(2, name), pushOf(3, name)}, 0) {
		t.Fatal("too much at the bound")
	}
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	if !s.put([]word{pushOf(4, name), pushOf(5, name), pushOf(6, name)}, 0) {
		t.Fatal("what was sent still counts")
	}
	if s.put([]word{pushOf(7, "")}, 0) {
		t.Error("more than the bound is taken")
	}
	if m, err := s.next(); m != nil || !errors.Is(err, errSlow) || len(s.outs) != 0 {
		t.Errorf("%v, %v, %d messages are kept", m, err, len(s.outs))
	}
}
