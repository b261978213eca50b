package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
)

func TestJoinIsAnsweredOnceRoutersKnowIt(t *testing.T) {
	w := newWorld(t)
	w.store.Publish("room/1", 3)
	m, loops := w.edge("e1", 2)
	j := join(t, m, loops[0], "room/1")
	if want := (exchange.Head{Topic: "room/1", Epoch: edgetest.Epoch, Head: 3, Oldest: 1, Behind: 3}); len(j.Heads) != 1 || j.Heads[0] != want {
		t.Errorf("heads %+v", j.Heads)
	}
	w.router.WaitHolds("room/1")
	m.Join(conn(1, 7), 2, "cursor/+", false, 0)
	if j := next[exchange.Joined](t, loops[1]); j.Err != nil || j.Sub != 2 || j.Conn != conn(1, 7) {
		t.Errorf("%+v", j)
	}
	w.router.Send(append(w.store.Publish("room/1", 2), &meshv1.Delivery{Topic: "cursor/a"})...)
	waitLive(t, loops[0], "room/1", "4 5")
	waitLive(t, loops[1], "cursor/a", "0")
	if got := loops[1].live("room/1"); got != "" {
		t.Errorf("a loop got %q of a topic it does not want", got)
	}
	m.Leave(0, "room/1")
	w.router.WaitHolds("cursor/+")
}

func TestJoinThatIsLeftAtOnceIsAnsweredToo(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/0") // routers were heard
	for i := range uint32(100) {
		m.Join(conn(0, 1), i, "room/1", true, 0)
		m.Leave(0, "room/1")
		if j := next[exchange.Joined](t, loops[0]); j.Sub != i {
			t.Fatalf("%+v", j)
		}
	}
	w.router.WaitHolds("room/0")
	if n := m.joins.waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// unstored are the first messages of a topic as a router sends them. No log has them, so that they
// come by NATS or not at all.
func unstored(t testing.TB, topic string, n int) (all []*meshv1.Delivery) {
	t.Helper()
	for seq := range uint64(n) {
		body, err := wire.Body(&wirev1.Message{Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &meshv1.Delivery{Topic: topic, Epoch: edgetest.Epoch, Seq: seq + 1, Body: body})
	}
	return all
}

func TestSampledMessagesHaveASpan(t *testing.T) {
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	m, loops := w.edge("e1", 1, func(c *Config) { c.Tracer, c.Traced = provider.Tracer(""), true })
	join(t, m, loops[0], "room/1")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	d := unstored(t, "room/1", 2)
	var err error
	if d[1].Body, err = wire.Body(&wirev1.Message{Traceparent: parent}); err != nil {
		t.Fatal(err)
	}
	w.router.Send(d...)
	waitLive(t, loops[0], "room/1", "1 2")
	edgetest.WaitFor(t, "a span", func() error {
		ended := spans.Ended()
		if len(ended) != 1 {
			return fmt.Errorf("%d spans", len(ended))
		}
		if s := ended[0]; s.Name() != "pushmesh.edge.deliver" || s.Parent().SpanID().String() != "b7ad6b7169203331" ||
			s.SpanContext().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestLaggingRouterDelaysAJoinByItsPatienceAlone(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/0")
	w.router.Deafen(true)
	filters := []string{"room/0"}
	for {
		before := m.stats.Laggards.Load()
		filters = append(filters, fmt.Sprint("room/", len(filters)))
		begin := time.Now()
		join(t, m, loops[0], filters[len(filters)-1])
		d, lagged := time.Since(begin), m.stats.Laggards.Load()-before
		if lagged == 1 && d >= interest.Patience/2 {
			break
		}
		// A machine that stood still has the router seem silent, for which nobody waits, or the
		// patience begin before the join.
		if lagged > 1 || len(filters) == 10 {
			t.Fatalf("answered after %v, %d laggards", d, lagged)
		}
		edgetest.WaitFor(t, "the router", func() error { return hasRouter(m) })
	}
	w.router.Deafen(false)
	w.router.WaitHolds(filters...) // by digest and snapshot
	edgetest.WaitFor(t, "a snapshot", func() error {
		if m.stats.Snapshots.Load() == 0 {
			return errors.New("none was sent")
		}
		return nil
	})
}

func hasRouter(m *Mesh) error {
	if m.Routers() == 0 {
		return errors.New("none is alive")
	}
	return nil
}

func TestFiltersAreAnsweredWithTheirTopics(t *testing.T) {
	w := newWorld(t)
	w.store.Publish("room/1", 3)
	w.store.Publish("room/2", 1)
	m, loops := w.edge("e1", 1)
	j := join(t, m, loops[0], "room/+")
	slices.SortFunc(j.Heads, func(a, b exchange.Head) int { return strings.Compare(a.Topic, b.Topic) })
	if len(j.Heads) != 2 || j.Heads[0].Head != 3 || j.Heads[1].Topic != "room/2" {
		t.Errorf("heads %+v", j.Heads)
	}
	m.Join(conn(0, 1), 2, "room/#", true, 1)
	if j := next[exchange.Joined](t, loops[0]); code.Of(j.Err) != wirev1.Code_CODE_TOO_MANY_TOPICS {
		t.Errorf("%+v", j)
	}
	// The first messages of a topic that appears later are lost.
	w.store.Publish("room/3", 2)
	w.router.Lose()
	w.router.Beat()
	waitLive(t, loops[0], "room/3", "1 2")
}

func TestLostBatchesAreRepaired(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"a middle one": func(w *world) {
			w.store.Publish("room/1", 2)
			w.router.Lose()
			w.router.Send(w.store.Publish("room/other", 1)...)
		},
		"the last one, shown by a beat": func(w *world) {
			w.store.Publish("room/1", 2)
			w.router.Lose()
			w.router.Beat()
		},
		"an append of unknown outcome": func(w *world) {
			w.store.Publish("room/1", 2)
			w.router.Check("room/1")
		},
		"by a router that restarts": func(w *world) {
			w.store.Publish("room/1", 2)
			w.router.Restart()
			w.router.Beat()
		},
		"by a router that falls silent": func(w *world) {
			w.store.Publish("room/1", 2)
			w.router.Mute(true)
		},
		"with NATS": func(w *world) {
			w.nats.Down()
			w.store.Publish("room/1", 2)
			w.nats.Up()
		},
		"by a hole in the topic": func(w *world) {
			w.router.Send(w.store.Publish("room/1", 2)[1])
		},
		"in an epoch that is gone": func(w *world) {
			w.store.NewEpoch()
			w.store.Publish("room/1", 2)
			w.router.Lose()
			w.router.Beat()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m, loops := w.edge("e1", 1)
			join(t, m, loops[0], "room/1")
			w.router.Send(w.store.Publish("room/1", 1)...)
			waitLive(t, loops[0], "room/1", "1")
			lose(w)
			if strings.Contains(name, "epoch") {
				waitLive(t, loops[0], "room/1", "1 new 1 2")
			} else {
				waitLive(t, loops[0], "room/1", "1 2 3")
			}
			w.router.Mute(false)
			w.router.Restart() // and everything goes on
			w.router.WaitHolds("room/1")
			w.router.Send(w.store.Publish("room/1", 1)...)
			waitLive(t, loops[0], "room/1", map[bool]string{false: "1 2 3 4", true: "1 new 1 2 3"}[strings.Contains(name, "epoch")])
		})
	}
}

func TestBackstopComparesWhateverHappens(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1, func(c *Config) { c.BackstopEvery = 300 * time.Millisecond })
	join(t, m, loops[0], "room/1")
	others := func() (n uint64) {
		for reason, times := range m.stats.Checks() {
			if reason != "backstop" {
				n += times
			}
		}
		return n
	}
	var want []string
	for {
		before := others()
		w.store.Publish("room/1", 1)
		want = append(want, fmt.Sprint(len(want)+1))
		waitLive(t, loops[0], "room/1", strings.Join(want, " "))
		if others() == before && m.stats.Checks()["backstop"] > 0 {
			return
		}
		if len(want) == 10 { // others come of a router that was not heard for long
			t.Fatalf("not by the backstop: %v", m.stats.Checks())
		}
	}
}

// What is announced of members of groups has no log, whatever the policy of topics without one of
// their own: no store is asked for its head.
func TestAnnouncedMembersAreNotCompared(t *testing.T) {
	w := newWorld(t)
	all := func(string) bool { return true }
	m, _ := w.edge("e1", 1, func(c *Config) { c.BackstopEvery, c.Durable, c.DurableAny = 50*time.Millisecond, all, all })
	m.HasMembers("jobs/1", true)
	m.HasMembers("jobs/+", true)
	w.router.WaitHolds("$members/jobs/1", "$members/jobs/+")
	before := m.stats.Checks()["backstop"]
	edgetest.WaitFor(t, "some backstops", func() error {
		if n := m.stats.Checks()["backstop"]; n < before+5 {
			return fmt.Errorf("%d", n-before)
		}
		return nil
	})
	if n := w.store.Calls("Heads"); n != 0 {
		t.Errorf("the store was asked for heads %d times", n)
	}
	m.HasMembers("jobs/1", false)
	m.HasMembers("jobs/+", false)
	w.router.WaitHolds()
}

func TestDuplicatesAndDisorderAreInvisible(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	d := w.store.Publish("room/1", 4)
	w.router.Send(d[1], d[2], d[0], d[0], d[2])
	w.router.Send(d[3], d[1])
	waitLive(t, loops[0], "room/1", "1 2 3 4")
}

func TestEdgeWorksWithoutNATS(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	w.nats.Down()
	edgetest.WaitFor(t, "the end of NATS", func() error {
		if m.cfg.Bus.Connected() {
			return fmt.Errorf("still connected")
		}
		return nil
	})
	w.store.Publish("room/1", 3)
	if j := join(t, m, loops[0], "room/1"); j.Heads[0].Head != 3 || m.stats.WithoutRouter.Load() == 0 {
		t.Errorf("%+v", j)
	}
	m.Read(0, "room/1", edgetest.Epoch, 2, 0, 1<<20)
	if r := next[exchange.Range](t, loops[0]); r.Err != nil || len(r.Messages) != 2 || r.Head != 3 {
		t.Errorf("%+v", r)
	}
	m.Publish(conn(0, 1), "", 9, &meshv1.ClientPublish_Item{Topic: "chat"})
	if p := next[exchange.Published](t, loops[0]); p.ID != 9 || p.Result.GetCode() != wirev1.Code_CODE_UNAVAILABLE || p.Result.GetRetryAfterMs() == 0 {
		t.Errorf("%+v", p)
	}
	w.nats.Up()
	w.router.WaitHolds("room/1")
	waitLive(t, loops[0], "room/1", "")
}

// What is stored while there is no NATS comes to those who had subscribed before, again and again,
// without a backstop.
func TestHeadsAreFollowedWithoutNATS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, loops := w.edge("e1", 1, func(c *Config) { c.BackstopEvery = time.Hour })
	join(t, m, loops[0], "room/1")
	w.nats.Down()
	var want []string
	for n := range 3 {
		w.store.Publish("room/1", 1)
		want = append(want, fmt.Sprint(n+1))
		waitLive(t, loops[0], "room/1", strings.Join(want, " "))
	}
	if m.stats.Checks()["apart"] == 0 {
		t.Errorf("heads were compared because of %v", m.stats.Checks())
	}
	w.nats.Up()
	w.router.WaitHolds("room/1")
}

// A router that can't be heard may go on storing messages for as long as its producers stay.
func TestHeadsAreFollowedAfterARouterFellSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, loops := w.edge("e1", 1, func(c *Config) { c.BackstopEvery = time.Hour })
	second := edgetest.NewRouter(t, w.nats, "r2", "e1")
	join(t, m, loops[0], "room/1")
	for range 8 { // a machine that stands still for ten seconds may miss it
		edgetest.WaitFor(t, "both routers", func() error {
			if m.Routers() != 2 {
				return fmt.Errorf("%d routers", m.Routers())
			}
			return nil
		})
		before := m.stats.Checks()
		second.Mute(true)
		edgetest.WaitFor(t, "the second one to be missed", func() error {
			if m.stats.Checks()["silent"] == before["silent"] {
				return errors.New("not yet")
			}
			return nil
		})
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(doubtFor + 2*time.Second); time.Now().Before(end); <-tick.C {
			if m.stats.Checks()["apart"] > before["apart"] {
				return
			}
		}
		second.Mute(false)
	}
	t.Errorf("heads were compared because of %v", m.stats.Checks())
}

func TestStoreAwayAndBack(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	w.store.Down()
	w.router.Send(&meshv1.Delivery{Topic: "room/1", Epoch: edgetest.Epoch, Seq: 3})
	m.Join(conn(0, 1), 5, "room/2", true, 0)
	m.Read(0, "room/1", edgetest.Epoch, 1, 0, 1<<20)
	if j := next[exchange.Joined](t, loops[0]); code.Of(j.Err) != wirev1.Code_CODE_UNAVAILABLE || j.Sub != 5 {
		t.Errorf("%+v", j)
	}
	if r := next[exchange.Range](t, loops[0]); code.Of(r.Err) != wirev1.Code_CODE_UNAVAILABLE || r.From != 1 {
		t.Errorf("%+v", r)
	}
	m.Join(conn(0, 1), 6, "cursor/1", true, 0)
	if j := next[exchange.Joined](t, loops[0]); j.Err != nil {
		t.Errorf("an ephemeral topic needs the store: %v", j.Err)
	}
	w.store.Publish("room/1", 3)
	w.store.Up()
	waitLive(t, loops[0], "room/1", "1 2 3")
}

func TestRefusedRunsComeAgain(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	m.Join(conn(0, 1), 2, "cursor/1", false, 0)
	next[exchange.Joined](t, loops[0])
	loops[0].fill(true)
	w.router.Send(append(w.store.Publish("room/1", 2), &meshv1.Delivery{Topic: "cursor/1"})...)
	edgetest.WaitFor(t, "a refusal", func() error {
		if m.stats.Overloaded.Load() != 1 {
			return fmt.Errorf("%d ephemeral messages lost", m.stats.Overloaded.Load())
		}
		return nil
	})
	loops[0].fill(false)
	waitLive(t, loops[0], "room/1", "1 2")
	if loops[0].live("cursor/1") != "" {
		t.Error("the ephemeral message came")
	}
}

func TestReadsAreSharedAndServedFromRecentMessages(t *testing.T) {
	w := newWorld(t)
	d := w.store.Publish("room/1", 3)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	w.router.Send(w.store.Publish("room/1", 2)...)
	w.router.Send(d...)
	waitLive(t, loops[0], "room/1", "4 5")
	for tries := 1; ; tries++ {
		before := w.store.Calls("ReadLog")
		m.Read(0, "room/1", edgetest.Epoch, 4, 0, 1<<20)
		r := next[exchange.Range](t, loops[0])
		if r.Err != nil || len(r.Messages) != 2 {
			t.Fatalf("%+v", r)
		}
		if w.store.Calls("ReadLog") == before {
			break
		}
		if tries == 10 {
			// one may be a repair's, where the router's frames were slower than a check
			t.Fatal("the log is read")
		}
	}
	m.Read(0, "room/1", edgetest.Epoch, 1, 3, 1<<20)
	if r := next[exchange.Range](t, loops[0]); r.Err != nil || len(r.Messages) != 3 || r.Head != 5 {
		t.Errorf("%+v", r)
	}
	m.Read(0, "room/1", 7, 1, 3, 1<<20)
	if r := next[exchange.Range](t, loops[0]); code.Of(r.Err) != wirev1.Code_CODE_EPOCH_CHANGED || r.Epoch != edgetest.Epoch || r.Head != 5 {
		t.Errorf("%+v", r)
	}
}

func TestClientsMessagesKeepTheirOrder(t *testing.T) {
	for tries := 1; !keepTheirOrder(t); tries++ {
		if tries == 5 {
			t.Fatal("the router was away again and again")
		}
	}
}

// keepTheirOrder is false where the machine stood still for so long that the router seemed to be
// away.
func keepTheirOrder(t *testing.T) bool {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	edgetest.WaitFor(t, "a router", func() error { return hasRouter(m) })
	const n = 500
	for i := range uint32(n) {
		m.Publish(conn(0, 1), "", i+1, &meshv1.ClientPublish_Item{Topic: "chat", DedupeKey: fmt.Sprint(i)})
	}
	for i := range uint32(n) {
		p := next[exchange.Published](t, loops[0])
		if p.Result.GetCode() == wirev1.Code_CODE_UNAVAILABLE {
			return false
		}
		if p.ID != i+1 || p.Result.GetSeq() != uint64(i+1) {
			t.Fatalf("answer %d: %+v", i, p)
		}
	}
	for i, it := range w.router.Published() {
		if it.GetDedupeKey() != fmt.Sprint(i) {
			t.Fatalf("item %d is %v", i, it)
		}
	}
	return true
}

func TestDigestTellsOfDrainingAndLeaving(t *testing.T) {
	w := newWorld(t)
	m, _ := w.edge("e1", 1)
	m.Drain(t.Context())
	edgetest.WaitFor(t, "draining", func() error {
		if d := w.router.Digest(); !d.GetDraining() || d.GetLeaving() || d.GetConnections() != 3 {
			return fmt.Errorf("%v", d)
		}
		return nil
	})
}

// Subscribers at places of their own read on through a topic's log at their own paces: it is read
// about once for all of them.
func TestALogIsReadOnceForAllWhoAreBehind(t *testing.T) {
	w := newWorld(t)
	const messages, readers, each = 2000, 50, 4000
	w.store.Publish("room/1", messages)
	m, loops := w.edge("e1", 2)
	join(t, m, loops[0], "room/1")
	before := w.store.Calls("ReadLog")
	var at [readers]uint64
	for i := range at {
		at[i] = uint64(1 + 37*i)
	}
	answers := 0
	for round, pending := 0, true; pending; round++ {
		pending = false
		for i := range at {
			if at[i] > messages {
				continue
			}
			if pending = true; i > round%readers { // each is slower than the one before
				continue
			}
			l := i % 2
			m.Read(uint16(l), "room/1", edgetest.Epoch, at[i], 0, each)
			r := next[exchange.Range](t, loops[l])
			if r.Err != nil || len(r.Messages) == 0 || r.Messages[0].Seq != at[i] || r.From != at[i] || r.Head != messages {
				t.Fatalf("asked from %d: %d messages from %d, head %d: %v", at[i], len(r.Messages), r.From, r.Head, r.Err)
			}
			at[i] = r.Messages[len(r.Messages)-1].Seq + 1
			answers++
		}
	}
	if reads := w.store.Calls("ReadLog") - before; reads > 2*answers/readers {
		t.Errorf("the log was read %d times for %d answers to %d readers", reads, answers, readers)
	}
}

// Those who come while the log is read wait for what it brings, wherever they are in it.
func TestReadersWaitForTheReadUnderWay(t *testing.T) {
	w := newWorld(t)
	w.store.Publish("room/1", 100)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	before := w.store.Calls("ReadLog")
	for from := range uint64(50) {
		m.Read(0, "room/1", edgetest.Epoch, from+1, 0, 1<<20)
	}
	for range 50 {
		if r := next[exchange.Range](t, loops[0]); r.Err != nil || r.Messages[0].Seq != r.From || r.Messages[len(r.Messages)-1].Seq != 100 {
			t.Fatalf("%+v", r)
		}
	}
	if reads := w.store.Calls("ReadLog") - before; reads > 2 { // one may be a repair's
		t.Errorf("the log was read %d times", reads)
	}
}
