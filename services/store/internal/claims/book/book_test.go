package book

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// desk is a book, its clock, and the database that its changes go to.
type desk struct {
	t     testing.TB
	b     *Book
	rules policy.Claims
	now   uint64
	rows  map[backend.ClaimKey]backend.ClaimPlace
	// next number of a take.
	next uint64
	// got in the last step.
	got *Step
}

func newDesk(t testing.TB, change ...func(*policy.Claims)) *desk {
	d := &desk{t: t, now: 1e15, next: 1, rows: map[backend.ClaimKey]backend.ClaimPlace{}}
	d.rules = policy.Claims{
		Holders: 1, MaxWaiting: 100, TTL: 30 * time.Second, MaxTTL: time.Hour, Grace: 10 * time.Second, WaitTTL: 15 * time.Second, OfferTTL: 2 * time.Second,
	}
	for _, c := range change {
		c(&d.rules)
	}
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }})
	d.load(shardOf("r"))
	return d
}

func shardOf(resource string) int { return topic.Shard(resource) }

// load has the book begin shards with what was committed.
func (d *desk) load(shards ...int) {
	for _, n := range shards {
		var rows []backend.ClaimPlace
		for _, row := range d.rows {
			if row.Shard == n {
				rows = append(rows, row)
			}
		}
		slices.SortFunc(rows, func(a, b backend.ClaimPlace) int { return int(int64(a.Seq) - int64(b.Seq)) })
		d.b.Load(d.now, backend.ClaimShard{Shard: n, Next: d.next}, slices.Values(rows))
		d.next += backend.ClaimNumbers
	}
	d.advance(0)
}

// advance lets time pass, and does what is due then.
func (d *desk) advance(by time.Duration) *Step {
	d.now += uint64(by.Microseconds())
	for d.b.Advance(d.now, 100) {
	}
	return d.take()
}

func (d *desk) take() *Step {
	d.got = d.b.Take()
	for _, row := range d.got.Changes.Put {
		d.rows[row.ClaimKey] = row
	}
	for _, k := range d.got.Changes.Delete {
		if _, is := d.rows[k]; !is {
			d.t.Fatalf("%v is deleted and was never put", k)
		}
		delete(d.rows, k)
	}
	return d.got
}

// do does an operation of one who polls, and returns its answer.
func (d *desk) do(kind meshv1.ClaimOp_Kind, owner string, with ...func(*Op)) Answer {
	d.t.Helper()
	op := Op{ClaimOp: &meshv1.ClaimOp{Kind: kind, Resource: "r", Owner: owner}, Ref: owner}
	for _, w := range with {
		w(&op)
	}
	d.b.Apply(d.now, op)
	s := d.take()
	if len(s.Answers) != 1 || s.Answers[0].Ref != op.Ref {
		d.t.Fatalf("answers: %v", s.Answers)
	}
	return s.Answers[0]
}

func token(t uint64) func(*Op) { return func(op *Op) { op.Token = t } }

// conn has the operation come from a connection of edge:1.
func conn(c uint64) func(*Op) {
	return func(op *Op) { op.Node, op.Incarnation, op.Conn, op.Bound = "edge:1", 1, c, true }
}

const (
	acquire = meshv1.ClaimOp_KIND_ACQUIRE
	renew   = meshv1.ClaimOp_KIND_RENEW
	release = meshv1.ClaimOp_KIND_RELEASE
	check_  = meshv1.ClaimOp_KIND_CHECK
	leave   = meshv1.ClaimOp_KIND_LEAVE
	watch_  = meshv1.ClaimOp_KIND_WATCH
	unwatch = meshv1.ClaimOp_KIND_UNWATCH
	untie   = meshv1.ClaimOp_KIND_UNTIE

	isGranted  = wirev1.ClaimState_STATE_GRANTED
	isQueued   = wirev1.ClaimState_STATE_QUEUED
	isLost     = wirev1.ClaimState_STATE_LOST
	isReleased = wirev1.ClaimState_STATE_RELEASED
	isFree     = wirev1.ClaimState_STATE_FREE
	isHeld     = wirev1.ClaimState_STATE_HELD_BY_OTHER
)

// is fails unless an answer has a state.
func (d *desk) is(a Answer, want wirev1.ClaimState_State) *wirev1.ClaimState {
	d.t.Helper()
	if a.Code != wirev1.Code_CODE_OK || a.State.GetState() != want {
		d.t.Fatalf("%v %q %v, not %v", a.Code, a.Error, a.State, want)
	}
	return a.State
}

func (d *desk) refused(a Answer, want wirev1.Code) {
	d.t.Helper()
	if a.Code != want || a.State != nil {
		d.t.Fatalf("%v %q %v, not %v", a.Code, a.Error, a.State, want)
	}
}

func TestAcquireAndRelease(t *testing.T) {
	d := newDesk(t)
	a := d.is(d.do(acquire, "a"), isGranted)
	if a.ExpiresInMs != 30_000 || a.ExpiresAt != d.now+30_000_000 || a.Token == 0 {
		t.Errorf("granted: %v", a)
	}
	if again := d.is(d.do(acquire, "a"), isGranted); again.Token != a.Token {
		t.Errorf("another token for the same hold: %v", again)
	}
	for i, owner := range []string{"b", "c"} {
		if q := d.is(d.do(acquire, owner), isQueued); q.Position != uint32(i+1) || q.PollAfterMs != 5000 || q.Holder != "a" {
			t.Errorf("queued: %v", q)
		}
	}
	if st := d.is(d.do(release, "b", token(a.Token)), isHeld); st.Code != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("who waits released something: %v", st)
	}
	if st := d.is(d.do(release, "a", token(a.Token+1)), isHeld); st.Code != wirev1.Code_CODE_NOT_HELD || st.Holder != "a" {
		t.Errorf("another token released something: %v", st)
	}
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	b := d.is(d.do(check_, "b"), isGranted)
	if b.Token <= a.Token {
		t.Errorf("token %d after %d", b.Token, a.Token)
	}
	if c := d.is(d.do(check_, "c"), isQueued); c.Position != 1 {
		t.Errorf("not next: %v", c)
	}
	d.is(d.do(leave, "c"), isReleased)
	d.is(d.do(leave, "b"), isGranted) // taken up: LEAVE is not RELEASE
	d.is(d.do(release, "b", token(b.Token)), isReleased)
	if st := d.is(d.do(release, "b", token(b.Token)), isFree); st.Code != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("released twice: %v", st)
	}
	if len(d.rows) != 0 || d.b.Stats() != (Stats{Shards: 1}) {
		t.Errorf("left: %v, %+v", d.rows, d.b.Stats())
	}
}

func TestExpiry(t *testing.T) {
	d := newDesk(t)
	a := d.is(d.do(acquire, "a", func(op *Op) { op.TtlMs = 1000 }), isGranted)
	d.is(d.do(acquire, "b", conn(7)), isQueued)
	d.advance(999 * time.Millisecond)
	d.is(d.do(renew, "a", token(a.Token)), isGranted)
	d.advance(time.Second - time.Microsecond)
	d.is(d.do(check_, "a"), isGranted)
	// Its time is over, but nobody has called Advance: the renewal is late all the same, and b is
	// next.
	d.now++
	d.refused(d.do(renew, "a", token(a.Token)), wirev1.Code_CODE_NOT_HELD)
	if len(d.got.Pushes) != 1 || d.got.Pushes[0].GetState().GetState() != isGranted || d.got.Pushes[0].Conn != 7 || d.got.Pushes[0].Node != "edge:1" {
		t.Errorf("pushed: %v", d.got.Pushes)
	}
	if d.got.Counts.Ended[wirev1.Code_CODE_EXPIRED] != 1 || d.got.Counts.Refused[wirev1.Code_CODE_NOT_HELD] != 1 || !slices.Equal(d.got.Counts.Waits, []float64{1.999}) {
		t.Errorf("counted: %+v", d.got.Counts)
	}
}

// What was committed is all that a book needs.
func TestLoad(t *testing.T) {
	d := newDesk(t)
	a := d.is(d.do(acquire, "a"), isGranted)
	for _, owner := range []string{"b", "c", "d"} {
		d.is(d.do(acquire, owner, func(op *Op) {
			if owner == "d" {
				op.Priority = 3
			}
		}), isQueued)
	}
	was := maps.Clone(d.rows)
	d.b.Drop(shardOf("r"))
	d.refused(d.do(acquire, "a"), wirev1.Code_CODE_CONFLICT)
	if d.b.Stats() != (Stats{}) {
		t.Errorf("a dropped shard has %+v", d.b.Stats())
	}
	d.load(shardOf("r"))
	if !maps.Equal(was, d.rows) {
		t.Errorf("loading changed %v to %v", was, d.rows)
	}
	if st := d.is(d.do(check_, "a"), isGranted); st.Token != a.Token || st.ExpiresAt != a.ExpiresAt {
		t.Errorf("%v became %v", a, st)
	}
	for i, owner := range []string{"d", "b", "c"} {
		if st := d.is(d.do(check_, owner), isQueued); st.Position != uint32(i+1) {
			t.Errorf("%s is at %d", owner, st.Position)
		}
	}
}
