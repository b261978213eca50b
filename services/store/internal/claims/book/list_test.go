package book

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// listing is a book of all shards with holders, prepared and waiting at many resources.
func listing(t *testing.T, resources int, change func(*policy.Claims)) (b *Book, want []string) {
	t.Helper()
	const now = 1e15
	rules := &policy.Claims{Holders: 2, MaxWaiting: 100, TTL: 1e12, MaxTTL: 1e12, WaitTTL: 1e12, OfferTTL: 1e12, Grace: 1e12}
	change(rules)
	b = New(Config{Rules: func(string) *policy.Claims { return rules }})
	for n := range topic.Shards {
		loadEmpty(b, now, n)
	}
	for i := range resources {
		for o := range 5 {
			name, owner := fmt.Sprintf("%c/%d", 'a'+i%2, i), fmt.Sprintf("o%d", o)
			b.Apply(now, Op{ClaimOp: &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: name, Owner: owner, Priority: uint32(o % 2), TtlMs: 1000}})
			want = append(want, name+" "+owner)
		}
	}
	for _, a := range b.Take().Answers {
		if a.Code != wirev1.Code_CODE_OK {
			t.Fatalf("%+v", a)
		}
	}
	slices.Sort(want)
	return b, want
}

// pages lists from a request on to the end, and checks that no page is too large.
func pages(t *testing.T, b *Book, req *meshv1.StoreServiceListClaimsRequest) (got []string) {
	t.Helper()
	for range 10_000 {
		page, err := b.List(req)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.GetPlaces()); n > int(req.GetLimit()) {
			t.Fatalf("%d places on a page of %d", n, req.GetLimit())
		}
		for _, p := range page.GetPlaces() {
			got = append(got, p.GetResource()+" "+p.GetOwner())
		}
		req.After, req.Shard = page.GetAfter(), page.GetNextShard()
		if page.GetNextShard() == topic.Shards {
			if len(page.GetAfter()) > 0 {
				t.Error("the last page says where to go on")
			}
			return got
		}
	}
	t.Fatal("the list has no end")
	return nil
}

// However large pages are, and wherever they end, a list has everybody once, those of a resource in
// their order; and so it has with a prefix, and for one resource.
func TestAListHasEverybodyOnce(t *testing.T) {
	for name, change := range map[string]func(*policy.Claims){
		"held": func(*policy.Claims) {}, "prepared": func(c *policy.Claims) { c.Prepare = &policy.Prepare{Group: "r"} },
	} {
		b, want := listing(t, 60, change)
		for _, limit := range []uint32{1, 2, 3, 5, 7, 10, 1000} {
			got := pages(t, b, &meshv1.StoreServiceListClaimsRequest{Limit: limit})
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("%s, pages of %d: %d places, want %d", name, limit, len(got), len(want))
			}
			got = pages(t, b, &meshv1.StoreServiceListClaimsRequest{Limit: limit, Prefix: "b/"})
			if slices.Sort(got); !slices.Equal(got, slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !strings.HasPrefix(s, "b/") })) {
				t.Fatalf("%s, pages of %d of a prefix: %v", name, limit, got)
			}
			got = pages(t, b, &meshv1.StoreServiceListClaimsRequest{Limit: limit, Resource: "a/8"})
			if first := []string{"a/8 o0", "a/8 o1"}; len(got) != 5 || !slices.Equal(got[:2], first) {
				t.Fatalf("%s, pages of %d of a resource: %v", name, limit, got)
			}
		}
		if page, err := b.List(&meshv1.StoreServiceListClaimsRequest{}); err != nil || len(page.GetPlaces()) != defaultPage {
			t.Errorf("%d places on a page of no size: %v", len(page.GetPlaces()), err)
		}
		if got := pages(t, b, &meshv1.StoreServiceListClaimsRequest{Limit: 5, Resource: "nobody's"}); len(got) > 0 {
			t.Errorf("nobody's: %v", got)
		}
	}
}

// A list that looks for a prefix looks at so many resources before it says where to go on: it holds
// up nothing.
func TestAListLooksAtSoManyResources(t *testing.T) {
	b, _ := listing(t, largestScan/4, func(*policy.Claims) {})
	rounds := 0
	for req := (&meshv1.StoreServiceListClaimsRequest{Limit: 5, Prefix: "z"}); req.GetShard() < topic.Shards; rounds++ {
		page, err := b.List(req)
		if err != nil || page.GetNextShard() <= req.GetShard() {
			t.Fatalf("from %d to %d: %v", req.GetShard(), page.GetNextShard(), err)
		}
		req.Shard = page.GetNextShard()
	}
	if rounds != 1 {
		t.Errorf("%d rounds for a quarter of what may be looked at", rounds)
	}
	for i := range largestScan {
		b.Apply(1e15, Op{ClaimOp: &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: fmt.Sprintf("c/%d", i), Owner: "o", TtlMs: 1000}})
	}
	page, err := b.List(&meshv1.StoreServiceListClaimsRequest{Limit: 5, Prefix: "z"})
	if err != nil || page.GetNextShard() == topic.Shards || page.GetNextShard() < topic.Shards/2 {
		t.Errorf("one page goes to shard %d: %v", page.GetNextShard(), err)
	}
}

// A mark that no page ended with is refused; so is a shard that this store does not have.
func TestAListOfNonsenseIsRefused(t *testing.T) {
	b, _ := listing(t, 3, func(*policy.Claims) {})
	page, err := b.List(&meshv1.StoreServiceListClaimsRequest{Limit: 1})
	if err != nil || len(page.GetAfter()) < 11 {
		t.Fatalf("%v, %v", page, err)
	}
	for _, stage := range []byte{0, 4, 255} {
		bad := slices.Clone(page.GetAfter())
		bad[0] = stage
		if _, err := b.List(&meshv1.StoreServiceListClaimsRequest{After: bad}); err == nil {
			t.Errorf("stage %d is taken", stage)
		}
	}
	if _, err := b.List(&meshv1.StoreServiceListClaimsRequest{After: page.GetAfter()[:10]}); err == nil {
		t.Error("a mark without a resource is taken")
	}
	b.Drop(7)
	if _, err := b.List(&meshv1.StoreServiceListClaimsRequest{Shard: 7}); err == nil {
		t.Error("a shard that is another store's is listed")
	}
	if page, err := b.List(&meshv1.StoreServiceListClaimsRequest{Shard: 3, Limit: 1000, Prefix: "none"}); err != nil || page.GetNextShard() != 7 {
		t.Errorf("up to shard %d: %v", page.GetNextShard(), err)
	}
}

// A shard that is taken again begins with what the database has, and nothing of before: no place,
// watch or call of its former life counts or is told.
func TestAShardThatIsTakenAgainBeginsAnew(t *testing.T) {
	d := newDesk(t)
	d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b", conn(1)), isQueued)
	d.is(d.do(watch_, "b", conn(1)), isQueued)
	before := d.b.Stats()
	d.load(shardOf("r"))
	st := d.b.Stats()
	before.Watches = 0
	if st != before {
		t.Errorf("%+v, before %+v", st, before)
	}
	n := 0
	for _, all := range d.b.nodes {
		for _, node := range all {
			n += len(node.ties)
		}
	}
	if n != 1 {
		t.Errorf("%d ties of one", n)
	}
}

func loadEmpty(b *Book, now uint64, n int) {
	b.Load(now, backend.ClaimShard{Shard: n, Next: 1}, slices.Values([]backend.ClaimPlace(nil)))
}
