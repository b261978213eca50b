package starts

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func keepers() *policy.Table {
	return policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "state", Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST}}})
}

// kept is a head of which the store keeps the newest message; later ones came live since.
func kept(name string, oldest, kept, newest uint64) exchange.Head {
	return exchange.Head{Topic: name, Epoch: epoch, Oldest: oldest, Head: newest, Behind: kept - 1}
}

// In a topic that keeps its last message a subscription without a position begins with that, and
// what it is told for the head is what it begins behind.
func TestWhereLastMessagesComeFirst(t *testing.T) {
	const live, session = wirev1.Start_START_LIVE, wirev1.Start_START_SESSION
	deleted := exchange.Head{Topic: "state/1", Epoch: epoch, Oldest: 3, Head: 9, Behind: 9}
	position := []*wirev1.Position{{Topic: "state/1", Epoch: epoch, Seq: 9}}
	for name, tt := range map[string]struct {
		m         *wirev1.Subscribe
		head      exchange.Head
		filters   []string
		pos, told uint64
	}{
		"live":                              {&wirev1.Subscribe{Start: live}, kept("state/1", 3, 9, 9), nil, 8, 8},
		"live, it alone is retained":        {&wirev1.Subscribe{Start: live}, kept("state/1", 9, 9, 9), nil, 8, 8},
		"live, with newer ones":             {&wirev1.Subscribe{Start: live}, kept("state/1", 3, 9, 11), nil, 8, 8},
		"live, it was deleted":              {&wirev1.Subscribe{Start: live}, deleted, nil, 9, 9},
		"live, it was deleted, newer ones":  {&wirev1.Subscribe{Start: live}, exchange.Head{Topic: "state/1", Epoch: epoch, Oldest: 3, Head: 12, Behind: 9}, nil, 9, 9},
		"live, retention took it since":     {&wirev1.Subscribe{Start: live}, kept("state/1", 11, 9, 12), nil, 10, 10},
		"live, a topic that is new":         {&wirev1.Subscribe{Start: live}, exchange.Head{Topic: "state/1", Epoch: epoch, Head: 2}, nil, 0, 0},
		"live, nothing was ever published":  {&wirev1.Subscribe{Start: live}, exchange.Head{Topic: "state/1", Epoch: epoch}, nil, 0, 0},
		"live, skipped":                     {&wirev1.Subscribe{Start: live, SkipLast: true}, kept("state/1", 3, 9, 9), nil, 9, 9},
		"live, ranked":                      {&wirev1.Subscribe{Start: live, RankTopK: 3}, kept("state/1", 3, 9, 9), nil, 9, 9},
		"live, a namespace that keeps none": {&wirev1.Subscribe{Start: live}, kept("room/1", 3, 9, 9), nil, 9, 9},
		"behind a position":                 {&wirev1.Subscribe{Positions: position}, kept("state/1", 3, 9, 9), nil, 9, 9},
		"a position that is gone":           {&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Seq: 4}, kept("state/1", 9, 9, 9), nil, 8, 9},
		"the earliest":                      {&wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}, kept("state/1", 3, 9, 9), nil, 2, 9},
		"a session that is new there":       {&wirev1.Subscribe{Start: session}, kept("state/1", 3, 9, 9), nil, 8, 9},
		"a session, skipped":                {&wirev1.Subscribe{Start: session, SkipLast: true}, kept("state/1", 3, 9, 9), nil, 9, 9},
		"a session that knew the filter":    {&wirev1.Subscribe{Start: session}, kept("state/1", 3, 9, 9), []string{"state/+"}, 2, 9},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{table: keepers()}
			tt.m.Filter = tt.head.Topic
			f.session.Attach(&exchange.Attached{Generation: 1, Filters: tt.filters, Cursors: map[string]*meshv1.SessionCursor{}})
			p, answer, err := f.place(t, tt.m, tt.head)
			if err != nil || p.Places[0].Pos != tt.pos || answer.GetHead() != tt.told {
				t.Errorf("it begins behind %d, and is told %d, %v; want %d and %d", p.Places[0].Pos, answer.GetHead(), err, tt.pos, tt.told)
			}
		})
	}
}

// With wildcards each topic begins by itself; one with a position of its own behind that.
func TestWhereLastMessagesOfManyComeFirst(t *testing.T) {
	f := &fake{table: keepers()}
	m := &wirev1.Subscribe{Filter: "#", Positions: []*wirev1.Position{{Topic: "state/1", Epoch: epoch, Seq: 7}}}
	p, answer, err := f.place(t, m, kept("state/1", 3, 9, 9), kept("state/2", 3, 5, 5), kept("room/1", 1, 4, 4))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ pos, told uint64 }{{7, 9}, {4, 4}, {4, 4}} {
		if at := p.Places[i]; at.Pos != want.pos || answer.GetPositions()[i].GetHead() != want.told {
			t.Errorf("%s begins behind %d, and is told %d", at.Head.Topic, at.Pos, answer.GetPositions()[i].GetHead())
		}
	}
}

func TestWhoNeedsHeadsForLastMessages(t *testing.T) {
	for filter, want := range map[string]bool{"#": true, "state/+": true, "room/#": false} {
		if got := Of(&wirev1.Subscribe{Filter: filter}, keepers).NeedsHeads(filter); got != want {
			t.Errorf("%s: %t", filter, got)
		}
	}
	if Of(&wirev1.Subscribe{Filter: "#", SkipLast: true}, keepers).NeedsHeads("#") || Of(&wirev1.Subscribe{Filter: "#"}, nil).NeedsHeads("#") {
		t.Error("who wants no last message needs heads")
	}
}
