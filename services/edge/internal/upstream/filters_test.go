package upstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// list is a payload that takes dear filters some milliseconds.
var list = "[" + strings.Repeat("1,", 1000) + "1]"

// dear has a topic filtered for n subscriptions, each of which looks through a list.
func dear(t *testing.T, m *Mesh, l *loop, topic string, n int) {
	t.Helper()
	for i := range n {
		m.Filter(conn(0, uint32(i)), 1, topic, fmt.Sprintf("payload.exists(x, x > %d.0)", 1000+i))
	}
	for range n {
		if e := next[exchange.Filtered](t, l); e.Err != nil || e.Program == 0 {
			t.Fatalf("%+v", e)
		}
	}
}

// filled are n deliveries with the list, of an ephemeral topic or stored ones.
func (w *world) filled(topic string, n int) (all []*meshv1.Delivery) {
	if durable(topic) {
		return w.store.PublishPayload(topic, n, list)
	}
	body, err := wire.Body(&wirev1.Message{Payload: []byte(list)})
	if err != nil {
		w.t.Fatal(err)
	}
	for range n {
		all = append(all, &meshv1.Delivery{Topic: topic, Body: body})
	}
	return all
}

func (l *loop) count(topic string) int { return len(strings.Fields(l.live(topic))) }

func sequence(to int) string {
	all := make([]string, to)
	for i := range all {
		all[i] = fmt.Sprint(i + 1)
	}
	return strings.Join(all, " ")
}

// withBudget lets filters take as long as they like.
func withBudget(c *Config) { c.FilterBudget = 1 << 30 }

// What no filter may see is not delayed by what others' filters take, and neither is what is cheap:
// it comes before the flood is through. A machine that stands still may show it late; the best of
// some rounds counts.
func TestDearFiltersDelayTheirTopicAlone(t *testing.T) {
	const flood, rounds = 60, 10
	w := newWorld(t)
	m, loops := w.edge("e1", 1, withBudget)
	l := loops[0]
	join(t, m, l, "cursor/dear")
	for _, topic := range []string{"cursor/plain", "cursor/cheap"} {
		join(t, m, l, topic)
	}
	dear(t, m, l, "cursor/dear", 8)
	m.Filter(conn(0, 100), 1, "cursor/cheap", "priority == 1")
	next[exchange.Filtered](t, l)
	for round := 1; ; round++ {
		w.router.Send(w.filled("cursor/dear", flood)...)
		w.router.Send(&meshv1.Delivery{Topic: "cursor/plain"}, &meshv1.Delivery{Topic: "cursor/cheap"})
		behind := 0
		edgetest.WaitFor(t, "others' messages", func() error {
			behind = round*flood - l.count("cursor/dear")
			if l.count("cursor/plain") != round || l.count("cursor/cheap") != round {
				return fmt.Errorf("%d of the flood wait", behind)
			}
			return nil
		})
		edgetest.WaitFor(t, "the flood", func() error {
			if n := l.count("cursor/dear"); n != round*flood {
				return fmt.Errorf("%d came", n)
			}
			return nil
		})
		if behind > flood/2 {
			return
		}
		if round == rounds {
			t.Fatalf("others' messages waited for %d of a flood of %d", flood-behind, flood)
		}
	}
}

// A topic's messages stay in order while its first filter comes and its last goes, and those that
// were sent without being judged are not overtaken by any.
func TestFiltersThatComeAndGoKeepTheOrder(t *testing.T) {
	const steps, each = 30, 10
	w := newWorld(t)
	m, loops := w.edge("e1", 1, withBudget)
	l := loops[0]
	join(t, m, l, "cursor/a")
	next := uint64(0)
	for step := range steps {
		c := conn(0, uint32(step))
		if step%2 == 0 {
			m.Filter(c, 1, "cursor/+", "payload.exists(x, x > 2.0)")
		} else {
			m.Unfilter(conn(0, uint32(step-1)), 1)
		}
		all := w.filled("cursor/a", each)
		for _, d := range all {
			next++
			d.ExpiresAt = next << 40 // told apart by this
		}
		w.router.Send(all...)
	}
	edgetest.WaitFor(t, "all of it", func() error {
		if n := l.count("cursor/a"); n != steps*each {
			return fmt.Errorf("%d came", n)
		}
		return nil
	})
	last := uint64(0)
	for _, msg := range l.messages("cursor/a") {
		if msg.ExpiresAt <= last {
			t.Fatalf("%d came after %d", msg.ExpiresAt>>40, last>>40)
		}
		last = msg.ExpiresAt
	}
	edgetest.WaitFor(t, "room", func() error {
		if st := m.judging.routed.Stats(); st.Messages.Load() != 0 || m.judging.routed.Busy("cursor/a") {
			return fmt.Errorf("%d messages are counted", st.Messages.Load())
		}
		return nil
	})
}

// Beyond the bound messages are dropped and counted. What was durable of them is read from the log:
// nothing is missing, and all is in order and judged.
func TestMessagesBeyondTheFiltersQueueAreRepaired(t *testing.T) {
	const flood = 100
	w := newWorld(t)
	m, loops := w.edge("e1", 1, withBudget, func(c *Config) { c.Judging = filters.StageConfig{Messages: 8} })
	l := loops[0]
	join(t, m, l, "room/dear")
	join(t, m, l, "cursor/dear")
	dear(t, m, l, "+/dear", 5)
	stored := w.filled("room/dear", flood)
	unstored := w.filled("cursor/dear", flood)
	for i := range stored {
		w.router.Send(stored[i], unstored[i])
	}
	waitLive(t, l, "room/dear", sequence(flood))
	dropped := m.judging.routed.Stats().Full.Load()
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	edgetest.WaitFor(t, "the rest", func() error {
		lost := uint64(flood - l.count("cursor/dear"))
		if lost == 0 || lost > m.judging.routed.Stats().Full.Load() || m.judging.routed.Stats().Messages.Load() > 0 {
			return fmt.Errorf("%d were lost", lost)
		}
		return nil
	})
	for _, msg := range l.messages("room/dear") {
		if _, known := msg.Verdicts.Load().Of(1); !known {
			t.Fatalf("%d was not judged", msg.Seq)
		}
	}
	found := false
	for _, f := range m.Figures() {
		found = found || f.Name == "where_dropped_total" && f.Value == "QUEUE_FULL" && f.N > 0
	}
	if !found {
		t.Error("no figure tells of it")
	}
}

// Where the last messages of a durable topic are dropped nothing shows the hole but the head, which
// is compared at once.
func TestTheLastMessagesBeyondTheFiltersQueueAreFound(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1, withBudget, func(c *Config) { c.Judging = filters.StageConfig{Messages: 1} })
	join(t, m, loops[0], "room/dear")
	dear(t, m, loops[0], "room/dear", 1)
	w.router.Send(w.filled("room/dear", 3)...) // one run of messages, of which none has room
	waitLive(t, loops[0], "room/dear", "1 2 3")
	if n := m.stats.Checks()["where"]; n == 0 {
		t.Error("the head was not compared for that")
	}
}
