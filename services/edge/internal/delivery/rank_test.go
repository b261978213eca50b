package delivery

import (
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// rankedWorld has feed (durable, the rest follows), top (durable, the rest is skipped) and flash
// (ephemeral).
func rankedWorld(t tester, lim Limits, most uint32) *world {
	w := newWorld(t, lim)
	rank := func(rest pushmeshv1.RankPolicy_Rest) *pushmeshv1.RankPolicy {
		return &pushmeshv1.RankPolicy{Rest: rest, MaxCandidates: most, Expression: &pushmeshv1.ExpressionScorer{Expression: "payload"}}
	}
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "feed", Policy: &pushmeshv1.Policy{Durable: true, Rank: rank(pushmeshv1.RankPolicy_REST_DELIVER)}},
		{Prefix: "top", Policy: &pushmeshv1.Policy{Durable: true, Rank: rank(pushmeshv1.RankPolicy_REST_SKIP)}},
		{Prefix: "flash", Policy: &pushmeshv1.Policy{Rank: rank(pushmeshv1.RankPolicy_REST_SKIP)}},
	})
	return w
}

// byPayload scores a message by its payload, a number, times the profile's taste; what is below 0
// is filtered.
func byPayload(p *exchange.Profile, m *exchange.Message) (float64, bool) {
	body := &wirev1.Message{}
	if err := proto.Unmarshal(m.Body(), body); err != nil {
		panic(err)
	}
	v, err := strconv.ParseFloat(string(body.GetPayload()), 64)
	if err != nil {
		panic(err)
	}
	taste := 1.0
	if p != nil {
		taste = p.Features["taste"]
	}
	return v * taste, v >= 0
}

// rankAll ends windows and answers rankings, and says of how many members each was.
func (w *world) rankAll() (members []int) {
	w.settle()
	w.mesh.EndWindows()
	w.settle()
	for _, r := range w.mesh.Rankings() {
		members = append(members, len(r.Members))
		w.mesh.Answer(r, byPayload)
	}
	w.settle()
	return members
}

func (w *world) ranked(filter string, topK uint32) *client {
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: filter, RankTopK: topK, Ack: true})
	c.expect("Subscribed 1 head=0")
	return c
}

func (c *client) taste(v float64) {
	c.w.h.conns.More(c.w.h.conns.Get(c.slot)).Profile = &exchange.Profile{Features: map[string]float64{"taste": v}}
}

func TestTheBestComeFirst(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	a, b, plain := w.ranked("feed/1", 2), w.ranked("feed/+", 1), w.connect(&wirev1.Hello{})
	b.taste(-1)
	plain.subscribe(&wirev1.Subscribe{Id: 1, Filter: "feed/1"})
	plain.expect("Subscribed 1 head=0")
	w.mesh.Send("feed/1", "3", "9")
	w.mesh.Send("feed/1", "5", "-1")
	a.expect()
	plain.expect("feed/1/1", "feed/1/2", "feed/1/3", "feed/1/4")
	if got := w.rankAll(); len(got) != 1 || got[0] != 2 {
		t.Fatalf("rankings of %v members", got)
	}
	a.expect("feed/1/2 subs=[1] score=9", "feed/1/3 subs=[1] score=5", "feed/1/1 subs=[1]")
	// the hole is named before the next one behind it
	b.expect("feed/1/1 subs=[1] score=-3", "feed/1/2 subs=[1]", "feed/1/3 subs=[1]")
	// 3, which was sent too, is above
	a.ack("feed/1", 2, true)
	if got := w.h.conns.Get(a.slot).Unacked; got != 1 {
		t.Fatalf("%d un-ACKed", got)
	}
	a.ack("feed/1", 3, false)
	w.mesh.Send("feed/1", "7")
	w.rankAll()
	a.expect("Progress feed/1 4..4 FILTERED", "feed/1/5 subs=[1] score=7")
	if w.mesh.Reads != 0 {
		t.Fatalf("%d reads of the log", w.mesh.Reads)
	}
}

func TestTheRestIsRankedOut(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c := w.ranked("top/1", 2)
	w.mesh.Send("top/1", "1", "2", "9", "3", "8", "4")
	w.rankAll()
	c.expect("Progress top/1 1..2 RANKED_OUT", "Progress top/1 4..4 RANKED_OUT", "top/1/3 subs=[1] score=9", "top/1/5 subs=[1] score=8")
	w.pass(gaps.Delay)
	c.expect("top/1/3 attempt=1 subs=[1]", "top/1/5 attempt=1 subs=[1]", "Progress top/1 6..6 RANKED_OUT")
	if n := w.h.Stats().Drops[wirev1.Code_CODE_RANKED_OUT]; n != 4 {
		t.Fatalf("%d counted", n)
	}
}

func TestASessionsBacklogIsRanked(t *testing.T) {
	w := rankedWorld(t, Limits{}, 3)
	connect := func() *client {
		c := w.session()
		c.take()
		c.got = nil
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "feed/1", RankTopK: 1, Ack: true, Start: wirev1.Start_START_SESSION})
		return c
	}
	c := connect()
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("feed/1", "1", "2", "3")
	w.rankAll()
	c.expect("feed/1/3 subs=[1] score=3", "feed/1/1 subs=[1]", "feed/1/2 subs=[1]")
	c.ack("feed/1", 2, false)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Send("feed/1", "5", "6", "4", "9")
	c = connect()
	c.expect("Subscribed 1 head=7")
	for range 4 {
		w.rankAll()
	}
	c.expect("feed/1/3 attempt=1 subs=[1] score=3", "feed/1/1 attempt=1 subs=[1]",
		"feed/1/5 subs=[1] score=6", "feed/1/4 subs=[1]", "feed/1/6 subs=[1]", "feed/1/7 subs=[1] score=9")
}

func TestWhatIsNotRankedSaysSo(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c, f := w.ranked("feed/1", 2), w.ranked("flash/#", 1)
	w.mesh.Send("feed/1", "1", "9")
	w.mesh.Live(upstreamtest.Run("flash/x", 0, 0, "1", "9")...)
	w.settle()
	w.mesh.EndWindows()
	w.settle()
	for _, r := range w.mesh.Rankings() {
		w.mesh.Fail(r, code.New(wirev1.Code_CODE_EXPIRED, "too slow"))
	}
	c.expect("feed/1/1 subs=[1] unranked", "feed/1/2 subs=[1] unranked")
	f.expect("flash/x=1 subs=[1] unranked", "flash/x=9 subs=[1] unranked")
	if n := w.h.Stats().Unranked[wirev1.Code_CODE_EXPIRED]; n != 4 {
		t.Fatalf("%d counted", n)
	}
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "feed", Policy: &pushmeshv1.Policy{Durable: true}}})
	w.h.Event(exchange.PoliciesChanged{})
	w.mesh.Send("feed/1", "1", "9")
	w.mesh.Live(upstreamtest.Run("flash/x", 0, 0, "1", "9")...)
	c.expect("feed/1/3 subs=[1]", "feed/1/4 subs=[1]")
	f.expect("flash/x=1 subs=[1]", "flash/x=9 subs=[1]")
}

func TestEphemeralCandidatesGather(t *testing.T) {
	w := rankedWorld(t, Limits{}, 3)
	a, b := w.ranked("flash/1", 2), w.ranked("flash/+", 1)
	w.mesh.Live(upstreamtest.Run("flash/1", 0, 0, "1", "9")...)
	w.settle()
	late := w.connect(&wirev1.Hello{})
	late.subscribe(&wirev1.Subscribe{Id: 4, Filter: "flash/1", RankTopK: 5, Where: "payload != 4"})
	late.expect("Subscribed 4 head=0")
	w.mesh.Live(upstreamtest.Run("flash/1", 0, 0, "5")...)
	w.settle()
	w.mesh.Live(upstreamtest.Run("flash/1", 0, 0, "4", "6")...) // no room in that window: it ends
	if got := w.rankAll(); len(got) != 2 || got[0] != 3 || got[1] != 3 {
		t.Fatalf("rankings of %v members", got)
	}
	a.expect("flash/1=9 subs=[1] score=9", "flash/1=5 subs=[1] score=5", "flash/1=6 subs=[1] score=6", "flash/1=4 subs=[1] score=4")
	b.expect("flash/1=9 subs=[1] score=9", "flash/1=6 subs=[1] score=6")
	late.expect("flash/1=5 subs=[4] score=5", "flash/1=6 subs=[4] score=6")
	if n := w.h.Stats().Drops; n[wirev1.Code_CODE_RANKED_OUT] != 4 || n[wirev1.Code_CODE_FILTERED] != 1 {
		t.Fatalf("%d ranked out, %d filtered", n[wirev1.Code_CODE_RANKED_OUT], n[wirev1.Code_CODE_FILTERED])
	}
}

func TestRankedSubscriptionsRefused(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c := w.connect(&wirev1.Hello{})
	for want, m := range map[string]*wirev1.Subscribe{
		"Error UNSUPPORTED ref=1":      {Filter: "feed/1", Group: "g"},
		"Error UNSUPPORTED ref=2":      {Filter: "feed/1", Start: wirev1.Start_START_AFTER_SEQ, Seq: 3},
		"Error UNSUPPORTED ref=3":      {Filter: "flash/1", Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST},
		"Error UNSUPPORTED ref=4":      {Filter: "flash/1", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE},
		"Error INVALID_ARGUMENT ref=5": {Filter: "room/1"},
	} {
		m.Id, m.RankTopK = uint32(want[len(want)-1]-'0'), 3
		c.subscribe(m)
		c.expect(want)
	}
}

// A slow client, and one that pays for others' memory, gets what is left once it may.
func TestALineupOutlivesItsRange(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c := w.connect(&wirev1.Hello{ReceiveWindow: 2})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "feed/1", RankTopK: 2, Ack: true})
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("feed/1", "1", "9", "8", "2", "3")
	w.rankAll()
	c.expect("feed/1/2 subs=[1] score=9", "feed/1/3 subs=[1] score=8")
	w.mesh.Send("feed/1", "7")
	w.settle()
	tr := w.h.conns.Get(c.slot).Tracks.At(0)
	w.h.replay.releaseRange(tr)
	c.ack("feed/1", 2, false)
	c.ack("feed/1", 3, false)
	c.expect("feed/1/1 subs=[1]", "feed/1/4 subs=[1]")
	c.ack("feed/1", 4, true)
	c.expect("feed/1/5 subs=[1]")
	c.ack("feed/1", 5, true)
	w.rankAll()
	c.expect("feed/1/6 subs=[1] score=7")
	w.pass(time.Second)
	w.h.Gone(c.slot)
	w.settle()
	for what, n := range w.h.InUse() {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// What the log has lost by the time that it is read for a ranking is named.
func TestNothingIsLeftToRank(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c := w.ranked("feed/1", 2)
	w.mesh.Append("feed/1", "1", "2")
	w.mesh.Send("feed/1", "3") // the two before were lost on the way
	w.settle()
	w.mesh.Retain("feed/1", 4)
	w.rankAll()
	w.pass(gaps.Delay)
	c.expect("Progress feed/1 1..3 RETENTION")
}

// A log that begins anew is ranked from its beginning, and told so.
func TestARankedLogBeginsAnew(t *testing.T) {
	w := rankedWorld(t, Limits{}, 10)
	c := w.ranked("feed/1", 1)
	w.mesh.Send("feed/1", "1", "2", "3")
	w.rankAll()
	c.expect("feed/1/3 subs=[1] score=3", "feed/1/1 subs=[1]", "feed/1/2 subs=[1]")
	c.ack("feed/1", 3, true)
	w.mesh.NewEpoch("feed/1", upstreamtest.BaseEpoch+1)
	w.mesh.Send("feed/1", "5", "9")
	w.rankAll()
	c.expect("Progress feed/1 0..0 EPOCH_CHANGED", "feed/1/2 subs=[1] score=9", "feed/1/1 subs=[1]")
}

// A connection that is told to go waits for no ranking any more, while another goes on.
func TestWhoDrainsIsNotRankedFor(t *testing.T) {
	w := rankedWorld(t, Limits{}, 10)
	going, stays := w.ranked("feed/1", 1), w.ranked("feed/1", 1)
	w.mesh.Send("feed/1", "1")
	w.rankAll()
	going.expect("feed/1/1 subs=[1] score=1")
	stays.expect("feed/1/1 subs=[1] score=1") // un-ACKed, so that the connections stay
	w.h.port().AskToGo(going.slot, &wirev1.GoAway{}, w.h.now+int64(2*time.Second))
	going.expect("GoAway")
	w.mesh.Send("feed/1", "2", "3")
	for _, members := range w.rankAll() {
		if members != 1 {
			t.Errorf("a ranking for %d", members)
		}
	}
	going.expect()
	stays.expect("feed/1/3 subs=[1] score=3", "feed/1/2 subs=[1]")
}
