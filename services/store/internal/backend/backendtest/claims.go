package backendtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// claimWriter is a run of a test, with what it took last.
type claimWriter struct {
	t *testing.T
	backend.ClaimWriter
	next   map[int]uint64
	places []backend.ClaimPlace
}

func openClaims(t *testing.T, b backend.Backend, id string) *claimWriter {
	t.Helper()
	r, err := b.OpenClaims(within(t), owner(id))
	need(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return &claimWriter{t: t, ClaimWriter: r, next: map[int]uint64{}}
}

// try takes shards, and checks that what it is told is in order and of these shards.
func (r *claimWriter) try(force bool, shards ...int) error {
	r.t.Helper()
	r.places = nil
	taken, now, err := r.Take(within(r.t), shards, force, func(p backend.ClaimPlace) {
		if n := len(r.places); n > 0 && (r.places[n-1].Shard > p.Shard || r.places[n-1].Shard == p.Shard && r.places[n-1].Seq >= p.Seq) {
			r.t.Errorf("%v comes after %v", p.ClaimKey, r.places[n-1].ClaimKey)
		}
		if !slices.Contains(shards, p.Shard) {
			r.t.Errorf("a place of shard %d, taken were %v", p.Shard, shards)
		}
		r.places = append(r.places, p)
	})
	if err != nil {
		return err
	}
	var got []int
	for _, s := range taken {
		if s.Next == 0 || s.Next < r.next[s.Shard]+backend.ClaimNumbers && r.next[s.Shard] != 0 {
			r.t.Errorf("shard %d: numbers from %d after those from %d", s.Shard, s.Next, r.next[s.Shard])
		}
		got, r.next[s.Shard] = append(got, s.Shard), s.Next
	}
	if want := slices.Sorted(slices.Values(shards)); !slices.Equal(got, want) {
		r.t.Errorf("took %v, want %v", got, want)
	}
	if now == 0 {
		r.t.Error("a take without the time")
	}
	return nil
}

func (r *claimWriter) take(force bool, shards ...int) {
	r.t.Helper()
	need(r.t, r.try(force, shards...))
}

func (r *claimWriter) put(all ...backend.ClaimPlace) {
	r.t.Helper()
	r.commit(backend.ClaimChanges{Put: all})
}

func (r *claimWriter) commit(c backend.ClaimChanges) (now uint64) {
	r.t.Helper()
	now, err := r.Commit(within(r.t), &c)
	need(r.t, err)
	return now
}

// want says what was told by the last take.
func (r *claimWriter) want(all ...backend.ClaimPlace) {
	r.t.Helper()
	if diff := cmp.Diff(all, r.places); diff != "" {
		r.t.Errorf("places (-want +got):\n%s", diff)
	}
}

// place of a test, told from others by its owner.
func place(shard int, seq uint64, owner string) backend.ClaimPlace {
	return backend.ClaimPlace{ClaimKey: backend.ClaimKey{Shard: shard, Seq: seq}, Resource: "room/1", Owner: owner, JoinedAt: begin, ExpiresAt: after(time.Minute)}
}

func testClaimPlaces(t *testing.T, db Database) {
	b := db(t)
	a := openClaims(t, b, "a")
	a.take(false, 1023, 0, 7, 8)
	a.want()
	const most = math.MaxUint64
	n := a.next[7]
	full := backend.ClaimPlace{
		ClaimKey: backend.ClaimKey{Shard: 7, Seq: n + 1}, Resource: "room/ü", Owner: "böb\x00\xff'\\", Priority: 255, Token: most, TTL: most - 1, JoinedAt: most - 2,
		GrantedAt: most - 3, ExpiresAt: most - 4, OfferedUntil: most - 5, Node: "edge:1", Incarnation: most - 6, Conn: most - 7, Bound: true, GoneAt: most - 8,
	}
	small := backend.ClaimPlace{ClaimKey: backend.ClaimKey{Shard: 8, Seq: a.next[8]}, Owner: "x", Token: 1 << 63, TTL: 1, JoinedAt: 2, GrantedAt: 3, ExpiresAt: 4, OfferedUntil: 5, Incarnation: 6, Conn: 7, GoneAt: 8}
	empty := backend.ClaimPlace{ClaimKey: backend.ClaimKey{Shard: 1023, Seq: a.next[1023] + backend.ClaimNumbers - 1}}
	first := place(7, n, "first")
	a.put(empty, full, small)
	a.put(first)
	now := openClaims(t, b, "b")
	now.take(true, 8, 1023, 7, 0)
	now.want(first, full, small, empty)

	first.Token, first.Priority, first.Owner = 5, 9, "changed"
	last := place(7, now.next[7], "last")
	now.commit(backend.ClaimChanges{Put: []backend.ClaimPlace{last, first}, Delete: []backend.ClaimKey{full.ClaimKey, {Shard: 8, Seq: 999}, empty.ClaimKey}})
	// it is gone already
	now.commit(backend.ClaimChanges{Delete: []backend.ClaimKey{full.ClaimKey}})
	now.take(false, 7, 8, 1023)
	now.want(first, last, small)
	now.take(false, 8)
	now.want(small)
	closeNow(t, b) // with the run open
	b = db(t)
	defer closeNow(t, b)
	a = openClaims(t, b, "c")
	a.take(false, 0, 7, 8, 1023)
	a.want(first, last, small)
	if a.next[7] < now.next[7]+backend.ClaimNumbers {
		t.Errorf("numbers from %d after those from %d", a.next[7], now.next[7])
	}
}

func testClaimsAreExclusive(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	a, c := openClaims(t, b, "a"), openClaims(t, b, "c")
	a.take(false, 1, 2)
	if err := c.try(false, 3, 2); !errors.Is(err, backend.ErrShardTaken) {
		t.Fatalf("another's shard: %v, want ErrTaken", err)
	}
	a.take(false, 3) // nothing was taken
	c.take(false, 4)
	need(t, a.Give(within(t), []int{2, 77}))
	c.take(false, 2)
	a.commit(backend.ClaimChanges{})
	need(t, a.Give(within(t), []int{2})) // not its own any more: c keeps it
	if err := openClaims(t, b, "d").try(false, 2); !errors.Is(err, backend.ErrShardTaken) {
		t.Errorf("a shard given by who doesn't have it: %v, want ErrTaken", err)
	}
	closeNow(t, a)
	c.take(false, 1, 3)
	if c.next[1] != a.next[1]+backend.ClaimNumbers {
		t.Errorf("numbers from %d after those from %d", c.next[1], a.next[1])
	}
	c.put(place(1, c.next[1], "x"))
	if _, err := a.Commit(within(t), &backend.ClaimChanges{}); err == nil {
		t.Error("a closed run could commit")
	}
}

func testClaimsFenced(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	// Each is fenced by the take of one shard of two, and does one thing then.
	for i, do := range []struct {
		what string
		do   func(r *claimWriter) error
	}{
		{"a commit", func(r *claimWriter) error {
			_, err := r.Commit(within(t), &backend.ClaimChanges{Put: []backend.ClaimPlace{place(2, r.next[2]+1, "late")}, Delete: []backend.ClaimKey{{Shard: 2, Seq: r.next[2]}}})
			return err
		}},
		{"a put", func(r *claimWriter) error {
			_, err := r.Commit(within(t), &backend.ClaimChanges{Put: []backend.ClaimPlace{place(2, r.next[2]+1, "late")}})
			return err
		}},
		{"a delete", func(r *claimWriter) error {
			_, err := r.Commit(within(t), &backend.ClaimChanges{Delete: []backend.ClaimKey{{Shard: 2, Seq: r.next[2]}}})
			return err
		}},
		{"an empty commit", func(r *claimWriter) error {
			_, err := r.Commit(within(t), &backend.ClaimChanges{})
			return err
		}},
		{"a take", func(r *claimWriter) error { return r.try(false, 9) }},
		{"a forced take", func(r *claimWriter) error { return r.try(true, 1, 2) }},
		{"a give", func(r *claimWriter) error { return r.Give(within(t), []int{2}) }},
	} {
		old := openClaims(t, b, fmt.Sprint("old ", i))
		old.take(true, 1, 2)
		kept := place(2, old.next[2], do.what)
		old.put(kept)
		taker := openClaims(t, b, "taker")
		taker.take(true, 1)
		if err := do.do(old); !errors.Is(err, backend.ErrFenced) {
			t.Errorf("%s of a fenced run: %v, want ErrFenced", do.what, err)
		}
		taker.take(false, 2) // of nobody
		taker.want(kept)
		taker.commit(backend.ClaimChanges{Delete: []backend.ClaimKey{kept.ClaimKey}})
		if _, err := old.Commit(within(t), &backend.ClaimChanges{}); err == nil {
			t.Errorf("after %s a fenced run could commit", do.what)
		}
		closeNow(t, old)
		closeNow(t, taker)
	}
}

// testClaimsRace takes shards from a run that commits all the time: what was answered nil is what
// the taker loads, what was not may be the last of it.
func testClaimsRace(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	victim := openClaims(t, b, "0")
	victim.take(false, 1, 2)
	before := []backend.ClaimPlace(nil)
	for round := range 20 {
		type end struct {
			acked uint64
			err   error
		}
		ended, going := make(chan end, 1), make(chan struct{})
		go func(r *claimWriter, had []backend.ClaimPlace) {
			c := backend.ClaimChanges{}
			for _, p := range had {
				c.Delete = append(c.Delete, p.ClaimKey)
			}
			for n := uint64(0); ; n++ {
				// what is there is always one place in each shard, both of one number
				seq1, seq2 := r.next[1]+n, r.next[2]+n
				p1, p2 := place(1, seq1, fmt.Sprint(n)), place(2, seq2, fmt.Sprint(n))
				c.Put = []backend.ClaimPlace{p1, p2}
				_, err := r.Commit(within(t), &c)
				for err != nil && code.From(err).Code == wirev1.Code_CODE_UNAVAILABLE {
					// the taker holds a lock for long, and nothing was written
					_, err = r.Commit(within(t), &c)
				}
				if err != nil {
					ended <- end{n, err}
					return
				}
				if n == 1 {
					close(going)
				}
				c.Delete = []backend.ClaimKey{p1.ClaimKey, p2.ClaimKey}
			}
		}(victim, before)
		<-going
		taker := openClaims(t, b, fmt.Sprint(round+1))
		taker.take(true, 2)
		e := <-ended
		if !errors.Is(e.err, backend.ErrFenced) {
			t.Fatalf("the run that was taken from: %v, want ErrFenced", e.err)
		}
		two := taker.places
		taker.take(false, 1)
		one := taker.places
		want := fmt.Sprint(e.acked - 1)
		if len(one) != 1 || len(two) != 1 || one[0].Owner != want || two[0].Owner != want {
			t.Fatalf("the last commit of %d was answered; there are %v and %v", e.acked, one, two)
		}
		closeNow(t, victim)
		before, victim = slices.Concat(one, two), taker
	}
}

func testClaimsClock(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	r := openClaims(t, b, "a")
	r.take(false, 1)
	last := uint64(0)
	for i := range 50 {
		// the database's host is this one, or the test could not say more than that it goes on
		from := uint64(time.Now().UnixMicro())
		c := backend.ClaimChanges{}
		if i%2 == 0 {
			c.Put = []backend.ClaimPlace{place(1, r.next[1]+uint64(i), "x")}
		}
		now := r.commit(c)
		if to := uint64(time.Now().UnixMicro()); now < from || now > to || now <= last {
			t.Fatalf("the time is %d, asked from %d to %d; before it was %d", now, from, to, last)
		}
		last = now
	}
}

func testClaimsOfTheFenced(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	r, other := openClaims(t, b, "a"), openClaims(t, b, "other")
	r.take(false, 1)
	kept := place(1, r.next[1], "x")
	r.put(kept)
	other.take(false, 5)
	need(t, b.Fence(within(t), "a", 6)) // another incarnation
	r.commit(backend.ClaimChanges{})
	need(t, b.Fence(within(t), "a", 7))
	other.take(false, 1)
	other.want(kept)
	_, err := r.Commit(within(t), &backend.ClaimChanges{})
	if e := code.From(err); !errors.Is(err, backend.ErrFenced) && (err == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0) {
		t.Errorf("a commit after the fence: %v, want ErrFenced or UNAVAILABLE", err)
	}
	other.put(place(5, other.next[5], "y"))
}

func testClaimsNewEpoch(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	r := openClaims(t, b, "a")
	r.take(false, 1)
	kept := place(1, r.next[1], "x")
	r.put(kept)
	need(t, b.NewEpoch(within(t), uint64(time.Now().Add(time.Hour).UnixMicro())))
	if _, err := r.Commit(within(t), &backend.ClaimChanges{}); !errors.Is(err, backend.ErrFenced) {
		t.Errorf("a run of the old epoch: %v, want ErrFenced", err)
	}
	next := openClaims(t, b, "b")
	next.take(false, 1)
	next.want(kept)
	if least := r.next[1] + backend.ClaimsLost*backend.ClaimNumbers; next.next[1] < least {
		t.Errorf("numbers from %d, want %d or more: takes that were lost could have had the same", next.next[1], least)
	}
}
