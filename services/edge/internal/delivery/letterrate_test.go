package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/letters"
)

// nacking is a world whose session may make so many dead letters in a second, after so many
// attempts.
func nacking(t *testing.T, rate int, attempts uint32) *world {
	t.Helper()
	w := newWorld(t, Limits{DeadLetters: letters.Limits{Session: rate}})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, MaxAttempts: attempts}}})
	w.mesh.Append("room/1")
	return w
}

// nacked is one with so many messages for the session, which has subscribed.
func nacked(t *testing.T, rate int, attempts uint32, n int) (*world, *client) {
	t.Helper()
	w := nacking(t, rate, attempts)
	c := w.session()
	c.subscribeSession("room/1")
	w.pass(0)
	for range n {
		w.mesh.Send("room/1", "x")
	}
	return w, c
}

// nackAll reads what the client is sent, and Nacks room/1 up to last.
func (c *client) nackAll(last uint64) {
	c.take()
	for seq := uint64(1); seq <= last; seq++ {
		c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: seq})
	}
	c.take()
}

// lettersOnce checks that no message became a dead letter twice, and says how many did.
func (w *world) lettersOnce() int {
	w.t.Helper()
	seen := map[uint64]bool{}
	for _, l := range w.mesh.Letters {
		if seen[l.GetSeq()] || l.GetReason() != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED {
			w.t.Fatalf("dead letter %v", l)
		}
		seen[l.GetSeq()] = true
	}
	return len(seen)
}

// A session that Nacks all it gets makes dead letters at the edge's rate; what waits for its turn
// is not lost, is not sent meanwhile, and can still be ACKed.
func TestDeadLettersHaveARate(t *testing.T) {
	const n, rate = 30, 2
	w, c := nacked(t, rate, 1, n)
	w.pass(time.Second)
	begun := w.now
	c.nackAll(n)
	c.ack("room/1", n, false)
	for got := 0; got < n-1; got = w.lettersOnce() {
		w.pass(time.Second)
		since := time.Duration(w.now - begun)
		// one at once, and one that gathers while it takes its turns
		if most := 1 + int(since.Seconds())*rate + 1; w.lettersOnce() > most {
			t.Fatalf("%d dead letters in %s, at most %d are in time", w.lettersOnce(), since, most)
		}
		if since > 2*time.Minute {
			t.Fatalf("after %s only %d dead letters", since, w.lettersOnce())
		}
	}
	w.pass(10 * time.Second)
	if got := w.lettersOnce(); got != n-1 {
		t.Errorf("%d dead letters, want %d: one was ACKed", got, n-1)
	}
	if floor := w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor(); floor != n {
		t.Errorf("the session stands at %d, want %d", floor, n)
	}
	if w.h.stats.DeadLettersDelayed == 0 || w.h.stats.DeadLetters != n-1 {
		t.Errorf("%d dead letters, delayed %d times", w.h.stats.DeadLetters, w.h.stats.DeadLettersDelayed)
	}
}

// However often it comes back and Nacks, each of its messages is a dead letter once in the end, and
// none is lost.
func TestEveryNackedMessageEndsOnce(t *testing.T) {
	const n = 20
	w, c := nacked(t, 1, 2, n)
	for round := 1; w.lettersOnce() < n; round++ {
		if w.pass(500 * time.Millisecond); round > 500 {
			t.Fatalf("%d dead letters after %d connections", w.lettersOnce(), round)
		}
		c.nackAll(n)
		w.pass(500 * time.Millisecond)
		c.nackAll(n)
		w.h.Gone(c.slot)
		w.settle()
		if got := w.lettersOnce(); got > 3*round {
			t.Fatalf("%d dead letters by %d connections", got, round)
		}
		c = w.session()
		c.subscribeSession("room/1")
	}
	w.pass(time.Second)
	if floor := w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor(); floor != n {
		t.Errorf("the session stands at %d, want %d", floor, n)
	}
}

// Without a limit nothing waits.
func TestDeadLettersWithoutARate(t *testing.T) {
	w, c := nacked(t, 0, 1, 50)
	w.pass(time.Second)
	c.nackAll(50)
	w.pass(time.Second)
	if got := w.lettersOnce(); got != 50 || w.h.stats.DeadLettersDelayed != 0 {
		t.Errorf("%d dead letters, delayed %d times: %v, counted %d", got, w.h.stats.DeadLettersDelayed, w.mesh.Letters, w.h.stats.DeadLetters)
	}
}

// Who connects again gains one dead letter for each connection beside what the rate says.
func TestConnectingAgainGainsOneDeadLetter(t *testing.T) {
	const n, rate, connections = 250, 10, 25
	w, c := nacked(t, rate, 1, n)
	w.pass(time.Second)
	begun := w.now
	for range connections {
		c.nackAll(n)
		w.pass(100 * time.Millisecond)
		w.h.Gone(c.slot)
		w.settle()
		c = w.session()
		c.subscribeSession("room/1")
		w.pass(0)
	}
	since := time.Duration(w.now - begun)
	if got, most := w.lettersOnce(), int(since.Seconds()*rate); got == 0 || got > most+2*connections {
		t.Fatalf("%d dead letters in %s, want some and at most %d", got, since, most+2*connections)
	}
}

// A user's sessions make dead letters at the user's rate together, whatever each alone may; another
// user's go on, and in the end each message of all of them is a dead letter once.
func TestDeadLettersOfAUserHaveARate(t *testing.T) {
	const n, rate = 40, 2
	w := newWorld(t, Limits{DeadLetters: letters.Limits{Session: 1000, Users: letters.NewUsers(rate)}})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, MaxAttempts: 1}}})
	w.mesh.Append("room/1")
	of := func(clientID, session string) *client {
		c := w.connect(&wirev1.Hello{ClientId: clientID, Session: session, HeartbeatMs: 600_000})
		c.subscribeSession("room/1")
		return c
	}
	clients := []*client{of("ann", "1"), of("ann", "2"), of("ann", "3"), of("bob", "1")}
	w.pass(0)
	for range n {
		w.mesh.Send("room/1", "x")
	}
	w.pass(time.Second)
	begun := w.now
	for _, c := range clients {
		c.nackAll(n)
	}
	made := func() map[string]int {
		users := map[string]int{}
		once := map[string]bool{}
		for _, l := range w.mesh.Letters {
			if id := fmt.Sprint(l.GetUser(), "/", l.GetSession(), " ", l.GetSeq()); once[id] {
				t.Fatalf("%s is a dead letter twice", id)
			} else {
				once[id] = true
			}
			users[l.GetUser()]++
		}
		return users
	}
	for made()["client:ann"] < 3*n {
		w.pass(time.Second)
		since := time.Duration(w.now - begun)
		got := made()
		if most := 10*rate + int(since.Seconds()+1)*rate; got["client:ann"] > most {
			t.Fatalf("%d dead letters of ann in %s, at most %d are in time", got["client:ann"], since, most)
		}
		if since > 2*time.Minute {
			t.Fatalf("after %s only %v dead letters", since, got)
		}
	}
	if got := made(); got["client:bob"] != n || w.h.stats.DeadLettersDelayed == 0 {
		t.Errorf("dead letters %v, delayed %d times; want all of bob's as well", got, w.h.stats.DeadLettersDelayed)
	}
}
