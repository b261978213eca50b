package book

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// What is there stays, and can be asked for, when there is no room for more.
func TestNoRoomForMore(t *testing.T) {
	d := newDesk(t)
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }, Places: 2, Watches: 1})
	d.load(shardOf("r"))
	a := d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b"), isQueued)
	full := d.do(acquire, "c")
	d.refused(full, wirev1.Code_CODE_OVERLOADED)
	if full.RetryAfter <= 0 {
		t.Errorf("no time to come back: %+v", full)
	}
	d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(watch_, "b", conn(1)), isQueued)
	other := conn(2)
	d.refused(d.do(watch_, "", func(op *Op) {
		if other(op); true {
			op.Node = "edge:2"
		}
	}), wirev1.Code_CODE_OVERLOADED)
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	d.is(d.do(acquire, "c"), isQueued)
}

// Clients of a user have so many places together, whatever their names and connections; others,
// backends and who has a place already are not concerned, and what ends makes room.
func TestAUsersPlacesAreBounded(t *testing.T) {
	d := newDesk(t)
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }, UserPlaces: 2})
	names := []string{"r", "r2", "r3", "r4"}
	for _, name := range names {
		d.load(shardOf(name))
	}
	n := uint64(0)
	of := func(resource string) func(*Op) {
		n++
		return at(resource, n)
	}
	one := d.is(d.do(acquire, "ann/phone", of("r")), isGranted)
	d.is(d.do(acquire, "ann/laptop", of("r2")), isGranted)
	full := d.do(acquire, "ann/tv", of("r3"))
	d.refused(full, wirev1.Code_CODE_RATE_LIMITED)
	if !strings.Contains(full.Error, "--user-claims") || full.RetryAfter <= 0 {
		t.Errorf("%+v, want the flag and a time to come back", full)
	}
	d.is(d.do(acquire, "ann/phone", of("r")), isGranted)
	d.is(d.do(acquire, "bob/phone", of("r")), isQueued)
	d.is(d.do(acquire, "ann/cron", func(op *Op) { op.Resource = "r3" }), isGranted) // a backend's
	d.is(d.do(acquire, "client:ann/1", of("r4")), isGranted)
	d.is(d.do(acquire, "client:ann/2", of("r4")), isQueued)
	d.is(d.do(acquire, "client:ann/3", of("r4")), isQueued)
	// who names a successor spends nothing of the successor's
	d.is(d.do(release, "ann/phone", of("r"), token(one.Token), successorOf("bob/tv")), isReleased)
	d.is(d.do(acquire, "bob/phone", of("r")), isQueued)
	d.is(d.do(acquire, "bob/laptop", of("r2")), isQueued)
	d.refused(d.do(acquire, "bob/watch", of("r3")), wirev1.Code_CODE_RATE_LIMITED)
	d.is(d.do(acquire, "ann/tv", of("r")), isQueued) // ann has room again
	d.refused(d.do(acquire, "ann/tv", of("r2")), wirev1.Code_CODE_RATE_LIMITED)
	// a shard that is loaded again is counted again, and one that is gone is not
	d.load(shardOf("r2"))
	d.refused(d.do(acquire, "ann/tv", of("r2")), wirev1.Code_CODE_RATE_LIMITED)
	d.b.Drop(shardOf("r2"))
	d.is(d.do(acquire, "ann/tv", of("r3")), isQueued)
	for _, name := range names {
		d.b.Drop(shardOf(name))
	}
	if len(d.b.users) != 0 {
		t.Errorf("without places users are counted: %v", d.b.users)
	}
}

// at has an operation come from a client's connection, and name a resource.
func at(resource string, c uint64) func(*Op) {
	return func(op *Op) {
		conn(c)(op)
		op.Resource, op.Bound = resource, true
	}
}

// A user gets no further by naming its own clients as successors, and a store that has loaded its
// shards counts what it counted before: places that wait for their client to come back among them,
// and none that a backend keeps.
func TestAUsersPlacesAreCountedWhateverHappens(t *testing.T) {
	d := newDesk(t)
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }, UserPlaces: 2})
	names := []string{"q0", "q1", "q2", "q3"}
	again := func() {
		t.Helper()
		was := fmt.Sprint(d.b.users)
		for _, name := range names {
			d.load(shardOf(name))
		}
		if is := fmt.Sprint(d.b.users); is != was {
			t.Fatalf("loaded again the places of users are %s, they were %s", is, was)
		}
	}
	again()
	for _, r := range names[:2] {
		a := d.is(d.do(acquire, "ann/1", at(r, 1)), isGranted)
		d.is(d.do(release, "ann/1", at(r, 1), token(a.Token), successorOf("ann/2")), isReleased)
		d.is(d.do(acquire, "ann/2", at(r, 2)), isGranted)
	}
	full := func() {
		t.Helper()
		d.refused(d.do(acquire, "ann/3", at(names[2], 3)), wirev1.Code_CODE_RATE_LIMITED)
	}
	full()
	again()
	full()
	for _, r := range names[:2] {
		d.do(untie, "ann/2", at(r, 2)) // its connection ends
	}
	full()
	again()
	full()
	st := d.is(d.do(acquire, "ann/2", at(names[0], 4)), isGranted) // it is back
	full()
	// a backend keeps this one
	d.is(d.do(renew, "ann/2", token(d.is(d.do(check_, "ann/2", func(op *Op) { op.Resource = names[1] }), isGranted).Token), func(op *Op) { op.Resource = names[1] }), isGranted)
	again()
	d.is(d.do(acquire, "ann/3", at(names[2], 3)), isGranted)
	full = func() { t.Helper(); d.refused(d.do(acquire, "ann/4", at(names[3], 5)), wirev1.Code_CODE_RATE_LIMITED) }
	full()
	// who is at the bound still gets the state of what it can't have, and can give up what it has
	d.is(d.do(acquire, "bob/1", at(names[3], 9)), isGranted)
	d.is(d.do(acquire, "ann/4", at(names[3], 5), func(op *Op) { op.NoWait = true }), isHeld)
	d.is(d.do(release, "ann/2", at(names[0], 4), token(st.Token)), isReleased)
	d.is(d.do(acquire, "ann/4", at(names[3], 5)), isQueued)
	again()
}

func TestTheLineIsBounded(t *testing.T) {
	d := newDesk(t, func(c *policy.Claims) { c.MaxWaiting = 1 })
	d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b"), isQueued)
	d.refused(d.do(acquire, "c"), wirev1.Code_CODE_OVERLOADED)
	d.is(d.do(acquire, "c", func(op *Op) { op.NoWait = true }), isHeld)
	d.is(d.do(acquire, "b"), isQueued)
}

// A shard without numbers gives no token twice: it waits to be taken again.
func TestNumbersRunOut(t *testing.T) {
	d := newDesk(t)
	d.next = 1e6
	n := shardOf("r")
	d.b.Load(d.now, backend.ClaimShard{Shard: n, Next: d.next}, slices.Values([]backend.ClaimPlace(nil)))
	s := d.b.shards[n]
	s.next = s.most - 3
	if low := d.b.Low(1 << 20); !slices.Equal(low, []int{n}) {
		t.Errorf("low on numbers: %v", low)
	}
	a := d.is(d.do(acquire, "a"), isGranted) // two numbers
	d.refused(d.do(acquire, "b"), wirev1.Code_CODE_UNAVAILABLE)
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	d.refused(d.do(acquire, "b"), wirev1.Code_CODE_UNAVAILABLE)
	d.next = s.most
	d.load(n)
	if b := d.is(d.do(acquire, "b"), isGranted); b.Token <= a.Token || len(d.b.Low(1<<20)) != 0 {
		t.Errorf("token %d after %d", b.Token, a.Token)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	d := newDesk(t)
	d.is(d.do(acquire, "holder"), isGranted)
	for name, op := range map[string]func(*Op){
		"no owner":        func(op *Op) { op.Owner = "" },
		"a long owner":    func(op *Op) { op.Owner = strings.Repeat("x", 256) },
		"no resource":     func(op *Op) { op.Resource = "" },
		"a long resource": func(op *Op) { op.Resource = strings.Repeat("x", 256) },
		"a short ttl":     func(op *Op) { op.TtlMs = 999 },
		"a long ttl":      func(op *Op) { op.TtlMs = 3_600_001 },
		"a priority":      func(op *Op) { op.Priority = 10 },
		"no kind":         func(op *Op) { op.Kind = 99 },
		"no token":        func(op *Op) { op.Kind = release },
	} {
		op1 := d.do(acquire, "x", func(o *Op) {
			op(o)
			if o.Resource != "r" { // shards are told apart by the lane
				d.load(shardOf(o.Resource))
			}
		})
		if op1.Code != wirev1.Code_CODE_INVALID_ARGUMENT || op1.Error == "" {
			t.Errorf("%s: %v %q %v", name, op1.Code, op1.Error, op1.State)
		}
	}
	if got := fmt.Sprint(d.b.Stats().Places); got != "1" {
		t.Errorf("%s places", got)
	}
}

// What is just within a bound is taken.
func TestWhatIsWithinBoundsIsTaken(t *testing.T) {
	long := strings.Repeat("x", 255)
	d := newDesk(t)
	a := d.is(d.do(acquire, long, func(op *Op) { op.TtlMs, op.Priority = 3_600_000, 9 }), isGranted)
	d.is(d.do(renew, long, token(a.Token), func(op *Op) { op.TtlMs = 1000 }), isGranted)
	for _, kind := range []meshv1.ClaimOp_Kind{check_, watch_, unwatch} {
		// who only looks needs no name
		d.is(d.do(kind, "", conn(1)), isHeld)
	}
	other := strings.Repeat("y", 255)
	d.is(d.do(release, long, token(a.Token), successorOf(other)), isReleased)
	d.is(d.do(check_, other), isGranted)
}

// What no operation may say is refused, whatever else is right, and changes nothing.
func TestWhatIsBeyondBoundsIsRefused(t *testing.T) {
	d := newDesk(t)
	a := d.is(d.do(acquire, "a", func(op *Op) { op.TtlMs = 5000 }), isGranted)
	right := token(a.Token)
	for name, c := range map[string]struct {
		kind  meshv1.ClaimOp_Kind
		owner string
		with  func(*Op)
	}{
		"a renewal without a token":     {renew, "a", token(0)},
		"a renewal for too short":       {renew, "a", func(op *Op) { right(op); op.TtlMs = 999 }},
		"a renewal for too long":        {renew, "a", func(op *Op) { right(op); op.TtlMs = 3_600_001 }},
		"a release without a token":     {release, "a", token(0)},
		"a successor with a long name":  {release, "a", func(op *Op) { right(op); op.Successor = strings.Repeat("x", 256) }},
		"its own successor":             {release, "a", func(op *Op) { right(op); op.Successor = "a" }},
		"nobody leaves":                 {leave, "", func(*Op) {}},
		"nobody's connection ends":      {untie, "", conn(1)},
		"nobody renews":                 {renew, "", right},
		"no node watches":               {watch_, "a", func(*Op) {}},
		"no node watches no more":       {unwatch, "a", func(*Op) {}},
		"a watch of a name that's long": {watch_, strings.Repeat("x", 256), conn(1)},
	} {
		d.refused(d.do(c.kind, c.owner, c.with), wirev1.Code_CODE_INVALID_ARGUMENT)
		if d.got.Counts.Refused[wirev1.Code_CODE_INVALID_ARGUMENT] != 1 || len(d.got.Changes.Put)+len(d.got.Changes.Delete)+len(d.got.Pushes) > 0 {
			t.Errorf("%s: %+v", name, d.got)
		}
	}
	if st := d.is(d.do(check_, "a"), isGranted); st.ExpiresAt != a.ExpiresAt {
		t.Errorf("until %d, was %d", st.ExpiresAt, a.ExpiresAt)
	}
}

// The very last numbers of a shard are a place and its hold; with one less nobody comes, and a
// shard is low before that.
func TestTheLastNumbers(t *testing.T) {
	d := newDesk(t)
	s := d.b.shards[shardOf("r")]
	s.next = s.most - 100
	for numbers, low := range map[uint64]bool{99: false, 100: false, 101: true} {
		if got := len(d.b.Low(numbers)) == 1; got != low {
			t.Errorf("with 100 left it has less than %d: %v", numbers, got)
		}
	}
	s.next = s.most - 2
	a := d.is(d.do(acquire, "a"), isGranted)
	if a.Token != s.most-1 {
		t.Errorf("token %d, want %d", a.Token, s.most-1)
	}
	d.refused(d.do(release, "a", token(a.Token), successorOf("b")), wirev1.Code_CODE_UNAVAILABLE)
	d.is(d.do(check_, "a"), isGranted) // what could not be done changed nothing
}

// Who is turned away is told when it may help to come back: when the first hold ends, within a
// third of wait_ttl, and never at once.
func TestWhenToComeBack(t *testing.T) {
	for _, c := range []struct {
		left time.Duration // of the first hold
		want time.Duration
	}{{20 * time.Second, 5 * time.Second}, {5 * time.Second, 5 * time.Second}, {4 * time.Second, 4 * time.Second}, {1500 * time.Millisecond, 1500 * time.Millisecond}, {50 * time.Millisecond, 100 * time.Millisecond}} {
		d := newDesk(t, func(c *policy.Claims) { c.Holders, c.MaxWaiting = 2, 1 })
		d.is(d.do(acquire, "a", func(op *Op) { op.TtlMs = 60_000 }), isGranted)
		d.is(d.do(acquire, "b", func(op *Op) { op.TtlMs = 25_000 }), isGranted)
		d.advance(25*time.Second - c.left)
		d.is(d.do(acquire, "c"), isQueued)
		if full := d.do(acquire, "x"); full.Code != wirev1.Code_CODE_OVERLOADED || full.RetryAfter != c.want {
			t.Errorf("%s before a hold ends: refused for %s, want %s", c.left, full.RetryAfter, c.want)
		}
		st := d.is(d.do(acquire, "x", func(op *Op) { op.NoWait = true }), isHeld)
		if got := time.Duration(st.PollAfterMs) * time.Millisecond; got != c.want || st.ExpiresInMs != uint32(c.left.Milliseconds()) || st.ExpiresAt != d.now+uint64(c.left.Microseconds()) {
			t.Errorf("%s before a hold ends: %v, want to ask after %s", c.left, st, c.want)
		}
	}
	d := newDesk(t, func(c *policy.Claims) { c.Prepare, c.MaxWaiting = &policy.Prepare{}, 1 })
	d.is(d.do(acquire, "a"), isQueued)
	if full := d.do(acquire, "b"); full.Code != wirev1.Code_CODE_OVERLOADED || full.RetryAfter != 5*time.Second {
		t.Errorf("while nobody holds: %+v", full)
	}
	if st := d.is(d.do(check_, "b"), isHeld); st.PollAfterMs != 5000 || st.ExpiresAt != 0 || st.ExpiresInMs != 0 {
		t.Errorf("while nobody holds: %v", st)
	}
	d = newDesk(t)
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }, Places: 1, Watches: 1})
	d.load(shardOf("r"))
	d.is(d.do(acquire, "a"), isGranted)
	if full := d.do(acquire, "b"); full.RetryAfter != 5*time.Second {
		t.Errorf("no place: %+v", full)
	}
	d.is(d.do(watch_, "a", conn(1)), isGranted)
	d.is(d.do(watch_, "a", conn(1)), isGranted) // it does already
	if full := d.do(watch_, "a", func(op *Op) { op.Node, op.Incarnation = "edge:2", 1 }); full.Code != wirev1.Code_CODE_OVERLOADED || full.RetryAfter != 5*time.Second {
		t.Errorf("no watch: %+v", full)
	}
}

// An owner without a node behind it polls, whatever else it says of its connection; it is told how
// often.
func TestWhoHasNoNodePolls(t *testing.T) {
	d := newDesk(t)
	d.is(d.do(acquire, "a"), isGranted)
	nowhere := func(op *Op) { op.Conn = 7 }
	for range 2 {
		if st := d.is(d.do(acquire, "b", nowhere), isQueued); st.PollAfterMs != 5000 {
			t.Errorf("%v", st)
		}
	}
	d.advance(15*time.Second - time.Microsecond)
	d.is(d.do(check_, "b", nowhere), isQueued)
	d.advance(15 * time.Second)
	if d.got.Counts.Ended[wirev1.Code_CODE_IDLE_TIMEOUT] != 1 {
		t.Errorf("after wait_ttl: %+v", d.got.Counts)
	}
}

// A step that has anything to tell or to do is not empty.
func TestAStepWithAnythingIsNotEmpty(t *testing.T) {
	for has := range 1 << 5 {
		s := &Step{}
		if has&1 != 0 {
			s.Answers = make([]Answer, 1)
		}
		if has&2 != 0 {
			s.Changes.Put = make([]backend.ClaimPlace, 1)
		}
		if has&4 != 0 {
			s.Changes.Delete = make([]backend.ClaimKey, 1)
		}
		if has&8 != 0 {
			s.Pushes = make([]Push, 1)
		}
		if has&16 != 0 {
			s.Prepare = make([]Prepare, 1)
		}
		if s.Empty() != (has == 0) {
			t.Errorf("%+v is empty: %v", s, s.Empty())
		}
	}
}

// A shard that another store has taken is nothing to this one: what was about to be written, called
// or told of it is not, and nothing is waited for.
func TestNothingIsLeftOfADroppedShard(t *testing.T) {
	d := newDesk(t)
	d.b.NodeUp(d.now, "edge:1", 1)
	d.is(d.do(acquire, "o0"), isGranted)
	for i := range uint64(30) {
		d.do(acquire, fmt.Sprint("o", i+1), conn(i+1))
	}
	d.is(d.do(watch_, "", conn(99)), isHeld)
	for range 2 { // the second leaves positions and the state of the resource to be told later
		d.do(leave, fmt.Sprint("o", 1+d.b.Stats().Places%2), conn(1+uint64(d.b.Stats().Places%2)))
	}
	for i := range uint64(5) {
		d.b.Apply(d.now, Op{Node: "edge:1", Incarnation: 1, ClaimOp: &meshv1.ClaimOp{Kind: leave, Resource: "r", Owner: fmt.Sprint("o", 10+i), Conn: 10 + i}})
	}
	d.rules.Prepare = &policy.Prepare{}
	d.b.Apply(d.now, Op{ClaimOp: &meshv1.ClaimOp{Kind: release, Resource: "r", Owner: "o0", Token: d.hold("o0")}})
	d.b.Drop(shardOf("r"))
	s := d.b.Take()
	if len(s.Changes.Put)+len(s.Changes.Delete)+len(s.Pushes)+len(s.Prepare) > 0 {
		t.Errorf("%d and %d changes, pushes %v, calls %v", len(s.Changes.Put), len(s.Changes.Delete), s.Pushes, s.Prepare)
	}
	if at, any := d.b.Due(); any {
		t.Errorf("something is due at %d", at)
	}
	if st := d.b.Stats(); st != (Stats{}) {
		t.Errorf("%+v", st)
	}
	for _, all := range d.b.nodes {
		for _, n := range all {
			if len(n.ties)+len(n.watches) > 0 {
				t.Errorf("%s is tied %d times, watches %d", n.name, len(n.ties), len(n.watches))
			}
		}
	}
}

// hold is the token that an owner has.
func (d *desk) hold(owner string) uint64 {
	return d.b.shards[shardOf("r")].places[placeID{d.b.shards[shardOf("r")].resources["r"], owner}].token
}
