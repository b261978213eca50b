package principals

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// subscribers have filters, and "group:filter" in groups.
type subscribers struct {
	Delivery
	filters [][]string // by slot; nil: empty
	backend map[uint32]bool
	ended   []string
	looks   int
}

func (s *subscribers) LoseClaims(exchange.Conn, string, func(string) bool) {}

func (s *subscribers) Watches(exchange.Conn) int { return 0 }

func (s *subscribers) Slots() uint32 { return uint32(len(s.filters)) }

func (s *subscribers) Client(slot uint32) (string, string, bool, bool) {
	return "", "", s.backend[slot], true
}

func (s *subscribers) OpenConn(slot uint32) (exchange.Conn, bool) {
	return exchange.Conn{Slot: slot}, s.filters[slot] != nil
}

func (s *subscribers) Subscriptions(c exchange.Conn) (alone, shared int) {
	for _, f := range s.filters[c.Slot] {
		if strings.Contains(f, ":") {
			shared++
		}
	}
	return len(s.filters[c.Slot]) - shared, shared
}

func (s *subscribers) EndIf(c exchange.Conn, shared bool, i int, denied func(id uint32, filter, group string) string) bool {
	s.looks++
	all := s.filters[c.Slot]
	if shared {
		alone, _ := s.Subscriptions(c)
		i += alone
	}
	group, filter, is := strings.Cut(all[i], ":")
	if !is {
		group, filter = "", group
	}
	why := denied(0, filter, group)
	if why != "" {
		s.ended = append(s.ended, fmt.Sprint(c.Slot, " ", all[i]))
		s.filters[c.Slot] = slices.Delete(all, i, i+1)
	}
	return why != ""
}

func shut(prefixes ...string) *policy.Table {
	var all []*pushmeshv1.Namespace
	for _, prefix := range prefixes {
		all = append(all, &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{ClientSubscribe: pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE}})
	}
	return policy.NewTable(all)
}

// Clients lose what a namespace bars, however many they are and however much they have; backends,
// and what else there is, stay. What is barred while that goes on is found among what was passed.
func TestWhatANamespaceBarsEnds(t *testing.T) {
	const many = 10 * reviewSlice
	s := &subscribers{backend: map[uint32]bool{3: true}}
	for range 3 * slotsSlice {
		s.filters = append(s.filters, []string{"a/1", "b/1", "c/1", "g:a/2", "g:c/2"})
	}
	s.filters[1] = nil
	s.filters[2] = nil
	for range many {
		s.filters[2] = append(s.filters[2], "a/+")
	}
	table, jobs, cost := policy.NewTable(nil), &walk.Jobs{}, &walk.Cost{}
	x := New(Config{Namespaces: func() *policy.Table { return table }}, s, jobs, cost, now, func(uint32) string { return "" })
	// run does what is to do, and looks at how much that is at once.
	run := func(most int) {
		for range most {
			before := s.looks
			if jobs.Step() == 0 {
				return
			}
			cost.Take()
			if s.looks-before > slotsSlice*reviewSlice {
				t.Fatalf("%d subscriptions are looked at in one go", s.looks-before)
			}
		}
	}
	x.NamespacesChanged()
	if run(1000); s.looks != 0 {
		t.Error("no namespace bars anything, and subscriptions are looked at")
	}
	table = shut("a")
	x.NamespacesChanged()
	x.NamespacesChanged()
	run(2)
	if jobs.Len() != 1 || len(s.ended) == 0 {
		t.Fatalf("%d jobs, %d ended", jobs.Len(), len(s.ended))
	}
	table = shut("a", "b")
	x.NamespacesChanged()
	run(100_000)
	for slot, left := range s.filters {
		want := []string{"c/1", "g:c/2"}
		switch slot {
		case 1, 2:
			want = nil
		case 3:
			want = []string{"a/1", "b/1", "c/1", "g:a/2", "g:c/2"}
		}
		if !slices.Equal(left, want) {
			t.Fatalf("%d has %v, want %v", slot, left, want)
		}
	}
	if n := (3*slotsSlice-3)*3 + many; len(s.ended) != n || x.Stats().Barred != uint64(n) || x.barring != nil {
		t.Errorf("%d ended, want %d; %+v", len(s.ended), n, x.Stats())
	}
}
