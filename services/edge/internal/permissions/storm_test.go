package permissions

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// silent takes questions and answers none; it says what it knows.
type silent struct{ left time.Duration }

func (s *silent) Known(*identity.Question) (identity.Permission, bool) {
	return identity.Permission{Allowed: true, Left: s.left}, true
}

func (s *silent) Ask(exchange.Conn, uint64, *identity.Question, time.Duration) *code.Error {
	return nil
}

func (s *silent) Patience() time.Duration { return 10 * time.Second }

// loop is what a desk sees of connections; looks counts how often it is asked for rights.
type loop struct {
	looks int
	ended map[uint32]bool
}

func (l *loop) Rights(uint32) (identity.Rights, bool) {
	l.looks++
	return identity.Rights{User: "ann"}, true
}
func (l *loop) Issuer(uint32) string                       { return "" }
func (l *loop) Park(exchange.Conn, bool)                   {}
func (l *loop) Client(uint32) (string, string, bool, bool) { return "phone", "ann", false, true }
func (l *loop) Claims(exchange.Conn, string, bool) bool    { return false }
func (l *loop) Keep(exchange.Conn, int)                    {}

func (l *loop) EndSubscription(_ exchange.Conn, id uint32, _ wirev1.Code, _ string) {
	l.ended[id] = true
}

// A backend that says nothing has a connection with many subscriptions lose them in time, and the
// loop look at each of them some times, not ten times a second.
func TestManyLeasesWithoutAnAnswerAreLookedAtSeldom(t *testing.T) {
	const n = 1000
	now, l, jobs, cost := int64(0), &loop{ended: map[uint32]bool{}}, &walk.Jobs{}, new(walk.Cost)
	d := New(Config{Asker: &silent{time.Minute}, Delivery: l, Who: l, Jobs: jobs, Cost: cost, Now: func() int64 { return now }, Origin: func(uint32) string { return "" }})
	c := exchange.Conn{Slot: 1, Gen: 1}
	for id := uint32(1); id <= n; id++ {
		if why := d.For(c).Permit([]identity.Verb{identity.Subscribe}, "open/1", ""); why != nil {
			t.Fatal(why)
		}
		d.Hold(c, id)
	}
	l.looks = 0
	for ; now < int64(61*time.Second); now += int64(100 * time.Millisecond) {
		d.Tick()
		for jobs.Len() > 0 {
			jobs.Step()
		}
	}
	if len(l.ended) != n || d.Stats().Leases != 0 {
		t.Fatalf("%d of %d ended, %d last", len(l.ended), n, d.Stats().Leases)
	}
	if per := l.looks / n; per > 30 {
		t.Fatalf("each was looked at %d times", per)
	}
}
