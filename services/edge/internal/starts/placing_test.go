package starts

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// fake is a connection with a session, other live subscriptions, and positions by topic that can
// be shared.
type fake struct {
	filter  string
	table   *policy.Table
	shared  map[string]uint64
	waiting []string // filters of live subscriptions that have heard nothing
	session sessions.Session
	held    []string
}

const epoch = 7

func (f *fake) Filter() string { return f.filter }

func (f *fake) Shared(topic string) (t string, e, pos uint64, is bool) {
	pos, is = f.shared[topic]
	return topic, epoch, pos, is
}

func (f *fake) Hold(t string) (pos uint64, held bool) {
	if pos, held = f.shared[t]; held {
		f.held = append(f.held, t)
	}
	return pos, held
}

func (f *fake) Subscriptions() int { return len(f.waiting) }

func (f *fake) Awaits(i int, name string) bool { return topic.Match(f.waiting[i], name) }

func (f *fake) Session() *sessions.Session { return &f.session }

// place works everything out, and decodes the answer.
func (f *fake) place(t *testing.T, m *wirev1.Subscribe, heads ...exchange.Head) (*Placing[string], *wirev1.Subscribed, error) {
	t.Helper()
	f.filter = m.GetFilter()
	st, p, a := Of(m, func() *policy.Table { return f.table }), &Placing[string]{}, &frames.Subscribed{}
	st.Heads = heads
	var cost walk.Cost
	for n := 0; !p.Done(); n++ {
		if _, err := p.Step(st, a, f, &cost); err != nil {
			return p, nil, err
		}
		if n > 10_000 {
			t.Fatal("it never ends")
		}
	}
	out := &wirev1.Subscribed{}
	if err := proto.Unmarshal(a.Frame(1)[wire.HeaderSize:], out); err != nil {
		t.Fatal(err)
	}
	return p, out, nil
}

func head(name string, oldest, newest uint64) exchange.Head {
	return exchange.Head{Topic: name, Epoch: epoch, Oldest: oldest, Head: newest}
}

// Where a subscription to one topic begins, by what it asked for and what the log has.
func TestWhereASubscriptionBegins(t *testing.T) {
	const live, earliest, after, lastN = wirev1.Start_START_LIVE, wirev1.Start_START_EARLIEST, wirev1.Start_START_AFTER_SEQ, wirev1.Start_START_LAST_N
	for name, tt := range map[string]struct {
		m         *wirev1.Subscribe
		head      exchange.Head
		pos       uint64
		recovered bool
		missed    uint64
	}{
		"live":                              {&wirev1.Subscribe{Start: live}, head("room/1", 3, 9), 9, true, 0},
		"live in an empty log":              {&wirev1.Subscribe{Start: live}, head("room/1", 0, 0), 0, true, 0},
		"the earliest":                      {&wirev1.Subscribe{Start: earliest}, head("room/1", 3, 9), 2, true, 0},
		"the earliest of an empty log":      {&wirev1.Subscribe{Start: earliest}, head("room/1", 0, 0), 0, true, 0},
		"the last 4":                        {&wirev1.Subscribe{Start: lastN, Seq: 4}, head("room/1", 3, 9), 5, true, 0},
		"the last 100 of 7":                 {&wirev1.Subscribe{Start: lastN, Seq: 100}, head("room/1", 3, 9), 2, true, 0},
		"after a seq":                       {&wirev1.Subscribe{Start: after, Seq: 5}, head("room/1", 3, 9), 5, true, 0},
		"after the seq before the oldest":   {&wirev1.Subscribe{Start: after, Seq: 2}, head("room/1", 3, 9), 2, true, 0},
		"after a seq that is gone":          {&wirev1.Subscribe{Start: after, Seq: 1}, head("room/1", 3, 9), 2, false, 1},
		"after a seq that is not there yet": {&wirev1.Subscribe{Start: after, Seq: 10}, head("room/1", 3, 9), 2, false, 2},
		"after a seq of another epoch":      {&wirev1.Subscribe{Start: after, Seq: 5, Epoch: 6}, head("room/1", 3, 9), 2, false, 2},
		"after a position": {
			&wirev1.Subscribe{Positions: []*wirev1.Position{{Topic: "room/1", Epoch: epoch, Seq: 6}}}, head("room/1", 3, 9), 6, true, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.m.Filter = "room/1"
			p, answer, err := (&fake{}).place(t, tt.m, tt.head)
			if err != nil || len(p.Places) != 1 || p.Places[0].Pos != tt.pos {
				t.Fatalf("it begins at %v, %v, want behind %d", p.Places, err, tt.pos)
			}
			if answer.GetRecovered() != tt.recovered || answer.GetMissed() != tt.missed || answer.GetEpoch() != epoch || answer.GetHead() != tt.head.Head {
				t.Fatalf("the answer is %v", answer)
			}
		})
	}
}

// Whoever had messages of a topic that no log knows is told that these can't be had.
func TestTopicsThatNoLogKnows(t *testing.T) {
	_, answer, _ := (&fake{}).place(t, &wirev1.Subscribe{Filter: "room/1", Start: wirev1.Start_START_AFTER_SEQ, Seq: 5})
	if answer.GetRecovered() {
		t.Error("a log that is gone is said to be recovered")
	}
	positions := []*wirev1.Position{{Topic: "room/1", Epoch: epoch, Seq: 3}, {Topic: "room/2", Epoch: epoch, Seq: 3}, {Topic: "room/3"}}
	_, answer, _ = (&fake{}).place(t, &wirev1.Subscribe{Filter: "room/+", Positions: positions}, head("room/1", 1, 3))
	if n := len(answer.GetPositions()); answer.GetRecovered() || n != 2 || answer.GetPositions()[1].GetTopic() != "room/2" || answer.GetPositions()[1].GetRecovered() {
		t.Errorf("the answer is %v", answer)
	}
}

func TestPositionsThatAreRefused(t *testing.T) {
	at := func(name string) *wirev1.Position { return &wirev1.Position{Topic: name, Seq: 1} }
	_, _, err := (&fake{}).place(t, &wirev1.Subscribe{Filter: "room/+", Positions: []*wirev1.Position{at("room/1"), at("room/1")}})
	if !errors.Is(err, exchange.ErrTwoPositions) {
		t.Errorf("two positions in a topic: %v", err)
	}
	_, _, err = (&fake{}).place(t, &wirev1.Subscribe{Filter: "room/+", Positions: []*wirev1.Position{at("talk/1")}})
	if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a position in a topic that the filter does not match: %v", err)
	}
}

// A position that is shared is answered as it stands then, and stays there; a live subscription
// that has heard nothing yet of a topic hears all of it, and so does who shares its position.
func TestPositionsOfOthers(t *testing.T) {
	f := &fake{shared: map[string]uint64{"room/1": 12}, waiting: []string{"talk/#", "room/2"}}
	p, answer, err := f.place(t, &wirev1.Subscribe{Filter: "room/+"}, head("room/1", 1, 9), head("room/2", 1, 9), head("room/3", 1, 9))
	if err != nil || p.First != nil {
		t.Fatal(err, p.First)
	}
	for i, want := range []uint64{12, 0, 9} {
		if p.Places[i].Pos != want {
			t.Errorf("%s begins behind %d, want %d", p.Places[i].Head.Topic, p.Places[i].Pos, want)
		}
	}
	if !answer.GetRecovered() || answer.GetPositions()[0].GetHead() != 12 || len(f.held) != 1 {
		t.Errorf("the answer is %v, %v stay where they are", answer, f.held)
	}
}

// A session goes on where it stands. In topics without a position it begins at the beginning if one
// of its filters knew the topic before, and at the head otherwise; these first positions are to be
// stored.
func TestWhereASessionBegins(t *testing.T) {
	for name, tt := range map[string]struct {
		stored  *meshv1.SessionCursor
		filters []string
		head    exchange.Head
		pos     uint64
		fresh   bool
		missed  uint64
	}{
		"where it stands":           {&meshv1.SessionCursor{Epoch: epoch, Floor: 5}, nil, head("room/1", 3, 9), 5, false, 0},
		"in another epoch":          {&meshv1.SessionCursor{Epoch: 6, Floor: 5}, nil, head("room/1", 3, 9), 2, false, 2},
		"in a log that was rewound": {&meshv1.SessionCursor{Epoch: epoch, Floor: 50}, nil, head("room/1", 3, 9), 2, false, 2},
		"behind the oldest":         {&meshv1.SessionCursor{Epoch: epoch, Floor: 1, Acked: []uint64{3, 5}}, nil, head("room/1", 8, 9), 7, false, 3},
		"behind what it has":        {&meshv1.SessionCursor{Epoch: epoch, Floor: 1, Acked: []uint64{2, 7}}, nil, head("room/1", 8, 9), 7, false, 0},
		"with a new filter":         {nil, []string{"talk/+"}, head("room/1", 3, 9), 9, true, 0},
		"with a filter it had":      {nil, []string{"room/+"}, head("room/1", 0, 0), 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			cursors := map[string]*meshv1.SessionCursor{}
			if tt.stored != nil {
				cursors["room/1"] = tt.stored
			}
			f.session.Attach(&exchange.Attached{Generation: 1, Filters: tt.filters, Cursors: cursors})
			p, answer, err := f.place(t, &wirev1.Subscribe{Filter: "room/1", Start: wirev1.Start_START_SESSION}, tt.head)
			if err != nil {
				t.Fatal(err)
			}
			at := p.Places[0]
			if at.Pos != tt.pos || at.Cursor.Epoch != epoch || at.Cursor.Floor != tt.pos || at.Fresh != tt.fresh || f.session.Positions() != 0 {
				t.Fatalf("it begins at %+v, cursor %+v", at, at.Cursor)
			}
			if answer.GetMissed() != tt.missed || answer.GetRecovered() != (tt.missed == 0) {
				t.Fatalf("the answer is %v", answer)
			}
			if n := len(p.First.GetCursors()); (n == 1) != tt.fresh {
				t.Fatalf("%d first positions are to be stored", n)
			}
		})
	}
}

// Many filters are matched with a topic in parts, and what that costs is told.
func TestPlacingCostsWhatItLooksAt(t *testing.T) {
	f := &fake{filter: "room/1"}
	for i := range 1000 {
		f.waiting = append(f.waiting, fmt.Sprintf("talk/%d/+", i))
	}
	st, p, a := Of(&wirev1.Subscribe{Filter: "room/1"}, nil), &Placing[string]{}, &frames.Subscribed{}
	st.Heads = []exchange.Head{head("room/1", 1, 9)}
	steps, total, cost := 0, 0, walk.Cost{}
	for ; len(p.Places) == 0; steps++ {
		n, err := p.Step(st, a, f, &cost)
		if total += n; err != nil {
			t.Fatal(err)
		}
	}
	if steps < 5 || total < 50 {
		t.Fatalf("1,000 filters were matched in %d steps that cost %d", steps, total)
	}
}
