package storeclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const last = topic.Shards - 1

// topicIn finds a topic of a shard that fits.
func topicIn(fits func(shard int) bool) string {
	for i := 0; ; i++ {
		if t := fmt.Sprintf("room/%d", i); fits(topic.Shard(t)) {
			return t
		}
	}
}

func low(shard int) bool  { return shard < 512 }
func high(shard int) bool { return shard >= 512 }

// pair of stores with half of the shards each; the client knows the first alone.
func pair(t *testing.T) (*Client, *fake, *fake) {
	t.Helper()
	return pairThatIsWaitedFor(t, patient)
}

func pairThatIsWaitedFor(t *testing.T, w waits) (*Client, *fake, *fake) {
	t.Helper()
	a, b := newFake(t), newFake(t)
	a.own(0, 511, shards(512, last, b.addr))
	b.own(512, last, shards(0, 511, a.addr))
	c := clientThatWaits(t, w, a.addr)
	wait(t, c, "both owners known", func() bool { return ownedBy(c, 0, a.addr)() && ownedBy(c, last, b.addr)() })
	return c, a, b
}

func TestWithoutAStore(t *testing.T) {
	c := client(t, "127.0.0.1:1")
	_, _, err := c.Owner(3)
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 || e.Message != "no store owns shard 3 now: no store answers" {
		t.Errorf("owner: %v", err)
	}
	if _, err := c.ListNamespaces(t.Context(), &meshv1.ListNamespacesRequest{}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("namespaces: %v", err)
	}
	if _, err := c.Heads(t.Context(), nil, []string{"#"}, 0); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("heads: %v", err)
	}
	if c.Check() == nil {
		t.Error("healthy without a store")
	}
}

// Why a shard has no owner is said as far as it is known: stores give up their shards where their
// database is away.
func TestAShardWithoutAnOwner(t *testing.T) {
	a := newFake(t)
	a.own(0, 511)
	c := client(t, a.addr)
	says := func(why string) func() bool {
		return func() bool {
			_, _, err := c.Owner(last)
			return err != nil && code.From(err).Message == "no store owns shard 1023 now: "+why
		}
	}
	wait(t, c, "the other half goes to another store", says("another store is about to take it over"))
	a.set(func(f *fake) { f.ranges = nil })
	wait(t, c, "the database is away", says("stores answer and own no shards, as they do while their database is away"))
}

func TestOwnersAreLearntFromASeed(t *testing.T) {
	c, _, _ := pair(t)
	deadline := time.Now().Add(patience)
	for c.Check() != nil || c.CheckAny() != nil { // until the second store has answered itself
		if time.Now().After(deadline) {
			t.Fatal(c.Check(), c.CheckAny())
		}
		if err := c.Refreshed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATakeoverIsFollowed(t *testing.T) {
	c, a, b := pairThatIsWaitedFor(t, defaultWaits)
	a.set(func(f *fake) { f.hang = true })
	b.own(0, last)
	c.Refresh()
	wait(t, c, "the newcomer's word counts", ownedBy(c, 0, b.addr))
}

func TestConflictIsTriedOnceMoreAfterARefresh(t *testing.T) {
	c, a, b := pair(t)
	name := topicIn(low)
	a.own(512, last)
	b.own(0, 511)
	var seqs []uint64
	err := c.ReadLog(t.Context(), &meshv1.ReadLogRequest{Topic: name, FromSeq: 3, ToSeq: 5}, func(r *meshv1.ReadLogResponse) error {
		seqs = append(seqs, r.GetRecords()[0].GetSeq())
		return nil
	})
	if err != nil || !slices.Equal(seqs, []uint64{3, 4, 5}) {
		t.Fatalf("%v, %v", seqs, err)
	}
	// Where nobody admits to own it, the refusal gets through after two calls, not more.
	b.set(func(f *fake) { f.owns, f.calls = func(int) bool { return false }, 0 })
	err = c.ReadLog(t.Context(), &meshv1.ReadLogRequest{Topic: name, FromSeq: 1, ToSeq: 1}, func(*meshv1.ReadLogResponse) error { return nil })
	if code.Of(err) != wirev1.Code_CODE_CONFLICT {
		t.Fatal(err)
	}
	if n := b.count(func(f *fake) int { return f.calls }); n != 2 {
		t.Errorf("%d calls", n)
	}
}

func TestAReadIsNotBegunTwice(t *testing.T) {
	c, a, _ := pair(t)
	a.set(func(f *fake) { f.mid = code.New(wirev1.Code_CODE_CONFLICT, "lost it") })
	n := 0
	err := c.ReadLog(t.Context(), &meshv1.ReadLogRequest{Topic: topicIn(low), FromSeq: 1, ToSeq: 9}, func(*meshv1.ReadLogResponse) error {
		n++
		return nil
	})
	if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || n != 1 {
		t.Errorf("%d responses, %v", n, err)
	}
}

func TestAReadEndsWithItsTaker(t *testing.T) {
	c, a, _ := pair(t)
	mine := code.New(wirev1.Code_CODE_CONFLICT, "the taker's own")
	err := c.ReadLog(t.Context(), &meshv1.ReadLogRequest{Topic: topicIn(low), FromSeq: 1, ToSeq: 1 << 40}, func(*meshv1.ReadLogResponse) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	if n := a.count(func(f *fake) int { return f.calls }); n != 1 {
		t.Errorf("%d reads", n)
	}
}

func TestOtherErrorsGetThroughAtOnce(t *testing.T) {
	c, a, b := pair(t)
	for _, f := range []*fake{a, b} {
		f.set(func(f *fake) { f.broken = code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "busy") })
	}
	_, err := c.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "n"})
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter != time.Second {
		t.Errorf("got %v", err)
	}
	if n := a.count(func(f *fake) int { return f.calls }) + b.count(func(f *fake) int { return f.calls }); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestHeadsAreAskedOfTheOwners(t *testing.T) {
	c, a, b := pair(t)
	named := []string{topicIn(low), topicIn(high)}
	heads, err := c.Heads(t.Context(), named, []string{"all/#"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range heads {
		got = append(got, h.GetTopic())
	}
	want := slices.Concat(named, []string{"all/" + a.addr, "all/" + b.addr})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := c.Heads(t.Context(), nil, []string{"all/#"}, 1); code.Of(err) != wirev1.Code_CODE_TOO_MANY_TOPICS {
		t.Errorf("the limit counts over all owners together: %v", err)
	}
	b.set(func(f *fake) { f.ranges = nil })
	wait(t, c, "half has no owner", func() bool { _, _, err := c.Owner(last); return err != nil })
	if _, err := c.Heads(t.Context(), nil, []string{"all/#"}, 0); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("filters were answered without half of the shards: %v", err)
	}
}

// A store that says of itself that it has shards, and has not loaded them, knows nothing of their
// topics: no answer is better than one without them.
func TestHeadsUnderFiltersAreOfAllShards(t *testing.T) {
	c, _, b := pair(t)
	owns := b.owns
	b.set(func(f *fake) { f.owns = func(n int) bool { return n != last && owns(n) } })
	kept := &meshv1.StoreServiceListKeptRequest{}
	if heads, err := c.Heads(t.Context(), nil, []string{"all/#"}, 0); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("one shard is nowhere: %v, %v", heads, err)
	}
	if list, err := c.ListKept(t.Context(), kept); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("one shard is nowhere, and it lists %v, %v", list, err)
	}
	b.set(func(f *fake) { f.owns = owns })
	if _, err := c.Heads(t.Context(), nil, []string{"all/#"}, 0); err != nil {
		t.Error(err)
	}
	if list, err := c.ListKept(t.Context(), kept); err != nil || len(list.GetTopics()) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// While a shard moves, its former owner may not know yet that it has lost it.
func TestTheNewerOfTwoHeadsCounts(t *testing.T) {
	c, a, b := pair(t)
	for _, s := range []struct{ a, b, want *meshv1.Head }{
		{&meshv1.Head{Topic: "t", Epoch: 1, Head: 9}, &meshv1.Head{Topic: "t", Epoch: 1, Head: 7}, &meshv1.Head{Epoch: 1, Head: 9}},
		{&meshv1.Head{Topic: "t", Epoch: 1, Head: 9}, &meshv1.Head{Topic: "t", Epoch: 2, Head: 1}, &meshv1.Head{Epoch: 2, Head: 1}},
		{&meshv1.Head{Topic: "t", Epoch: 1, Head: 9}, &meshv1.Head{Topic: "t", Epoch: 1, Head: 10}, &meshv1.Head{Epoch: 1, Head: 10}},
	} {
		a.set(func(f *fake) { f.more = []*meshv1.Head{s.a} })
		b.set(func(f *fake) { f.more = []*meshv1.Head{s.b} })
		heads, err := c.Heads(t.Context(), nil, []string{"all/#"}, 3)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(heads, func(h *meshv1.Head) bool { return h.GetTopic() == "t" })
		if len(heads) != 3 || heads[i].GetEpoch() != s.want.GetEpoch() || heads[i].GetHead() != s.want.GetHead() {
			t.Errorf("%v of %v and %v", heads, s.a, s.b)
		}
	}
}

func TestHeadsOfManyTopics(t *testing.T) {
	c, _, _ := pair(t)
	named := make([]string, 3*topicsPerCall)
	for i := range named {
		named[i] = fmt.Sprintf("room/%d", i)
	}
	if heads, err := c.Heads(t.Context(), named, nil, 1); err != nil || len(heads) != len(named) {
		t.Errorf("%d heads, %v", len(heads), err)
	}
}

func writes(n int) (all []*meshv1.SessionWrite) {
	for i := range n {
		all = append(all, &meshv1.SessionWrite{User: "u", Name: fmt.Sprint(i), Generation: uint64(i % 2)})
	}
	return all
}

func TestCursorCodesKeepTheirOrder(t *testing.T) {
	c, _, _ := pair(t)
	resp, err := c.WriteCursors(t.Context(), &meshv1.WriteCursorsRequest{Writes: writes(40)})
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range resp.GetCodes() {
		if want := []wirev1.Code{wirev1.Code_CODE_SESSION_TAKEN_OVER, wirev1.Code_CODE_OK}[i%2]; k != want {
			t.Errorf("write %d: %v", i, k)
		}
	}
}

func TestCursorsOfAStoreThatFailsAreRefusedAlone(t *testing.T) {
	c, a, b := pair(t)
	b.set(func(f *fake) { f.broken = code.New(wirev1.Code_CODE_UNAVAILABLE, "no database") })
	resp, err := c.WriteCursors(t.Context(), &meshv1.WriteCursorsRequest{Writes: writes(40)})
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range resp.GetCodes() {
		if unavailable := k == wirev1.Code_CODE_UNAVAILABLE; unavailable != high(topic.SessionShard("u", fmt.Sprint(i))) {
			t.Errorf("write %d: %v", i, k)
		}
	}
	a.set(func(f *fake) { f.broken = code.New(wirev1.Code_CODE_UNAVAILABLE, "no database") })
	if _, err := c.WriteCursors(t.Context(), &meshv1.WriteCursorsRequest{Writes: writes(4)}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("nothing was answered, got %v", err)
	}
}

func TestCursorsFollowATakeover(t *testing.T) {
	c, a, b := pair(t)
	a.own(512, last)
	b.own(0, 511)
	resp, err := c.WriteCursors(t.Context(), &meshv1.WriteCursorsRequest{Writes: writes(40)})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(resp.GetCodes(), wirev1.Code_CODE_UNAVAILABLE) || slices.Contains(resp.GetCodes(), wirev1.Code_CODE_CONFLICT) {
		t.Errorf("codes %v", resp.GetCodes())
	}
}

func TestSessionPagesOfAllOwners(t *testing.T) {
	c, a, b := pair(t)
	var want []string
	for i := range 25 {
		s := &pushmeshv1.Session{User: "u", Name: fmt.Sprintf("%02d", i)}
		want = append(want, s.GetName())
		if i%3 == 0 {
			a.sessions = append(a.sessions, s)
		} else {
			b.sessions = append(b.sessions, s)
		}
	}
	for _, limit := range []uint32{0, 1, 4, 25} {
		var got []string
		for token, first := "", true; first || token != ""; first = false {
			resp, err := c.ListSessions(t.Context(), &meshv1.ListSessionsRequest{Limit: limit, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range resp.GetSessions() {
				got = append(got, s.GetName())
			}
			token = resp.GetNextPageToken()
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
	if _, _, err := ParsePageToken("!"); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("bad token: %v", err)
	}
}

func TestDeadLettersOfAllOwners(t *testing.T) {
	c, a, b := pair(t)
	a.dead = []*meshv1.DeadLetter{{Id: 1}, {Id: 4}}
	b.dead = []*meshv1.DeadLetter{{Id: 2}, {Id: 3}}
	resp, err := c.ListDeadLetters(t.Context(), &meshv1.ListDeadLettersRequest{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range resp.GetDeadLetters() {
		if d.GetId() != uint64(i+1) {
			t.Errorf("letter %d has id %d", i, d.GetId())
		}
	}
	if len(resp.GetDeadLetters()) != 3 {
		t.Errorf("%d letters", len(resp.GetDeadLetters()))
	}
	if n, err := c.DiscardDeadLetters(t.Context(), &meshv1.DiscardDeadLettersRequest{Ids: []uint64{1, 2}}); err != nil || n.GetDiscarded() != 4 {
		t.Errorf("%v, %v", n, err)
	}
}

func TestConnectionsOfStoresThatAreGoneAreClosed(t *testing.T) {
	c, a, b := pair(t)
	a.own(0, last)
	b.set(func(f *fake) { f.ranges = nil })
	c.Refresh()
	wait(t, c, "one owner", ownedBy(c, last, a.addr))
	if err := c.Refreshed(t.Context()); err != nil {
		// the round that closes has ended when the next has begun
		t.Fatal(err)
	}
	c.dials.mu.Lock()
	defer c.dials.mu.Unlock()
	if len(c.dials.conns) != 1 {
		t.Errorf("%d connections", len(c.dials.conns))
	}
}

func TestStoresAreBounded(t *testing.T) {
	d := newDials(nil)
	for i := range maxStores {
		if _, err := d.to(fmt.Sprintf("127.0.0.1:%d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.to("127.0.0.1:9999"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if _, err := d.to("127.0.0.1:1"); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("after close: %v", err)
	}
}

// A store that restarts on its address is found again, and calls meanwhile fail fast.
func TestARestartedStoreIsFoundAgain(t *testing.T) {
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	a := newFakeAt(t, addr).own(0, last)
	c := client(t, a.addr)
	wait(t, c, "the owner", ownedBy(c, 0, a.addr))
	a.srv.Stop()
	_, err = c.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "n"})
	if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatal(err)
	}
	newFakeAt(t, a.addr).own(0, last)
	deadline := time.Now().Add(patience)
	for {
		if _, err = c.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "n"}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		if err := c.Refreshed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An owner that answers nothing, and that nobody succeeds, is refused for at once after a while,
// and asked all the time: with its first answer calls go there again.
func TestASilentOwnerIsRefusedForAtOnce(t *testing.T) {
	a := newFake(t).own(0, last)
	c := clientThatWaits(t, defaultWaits, a.addr)
	wait(t, c, "the owner is known", ownedBy(c, 0, a.addr))
	a.set(func(f *fake) { f.hang = true })
	if err := c.Refreshed(t.Context()); err != nil { // no answer is on its way any more
		t.Fatal(err)
	}
	c.mu.Lock()
	c.lastAnswer[a.addr] = time.Now().Add(-c.waits.silent - time.Second)
	c.mu.Unlock()
	_, _, err := c.Owner(0)
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 || !c.Silent(a.addr) || c.Check() == nil || c.CheckAny() == nil {
		t.Errorf("silent: %v, healthy: %v", err, c.Check())
	}
	took := time.Hour
	for range 20 { // one of them is not held up by the machine
		begun := time.Now()
		if _, _, err := c.Owner(0); err == nil {
			t.Error("a silent owner is called")
		}
		took = min(took, time.Since(begun))
	}
	if took > time.Second {
		t.Errorf("refused after %s", took)
	}
	a.set(func(f *fake) { f.hang = false })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for again := ownedBy(c, 0, a.addr); !again(); {
		if err := c.Refreshed(ctx); err != nil {
			t.Fatalf("it answers again, and is not called: %v", err)
		}
	}
	if c.Silent(a.addr) {
		t.Error("still silent")
	}
}
