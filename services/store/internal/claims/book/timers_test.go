package book

import (
	"testing"

	"pgregory.net/rapid"
)

// sleeper is woken by timers.
type sleeper struct {
	slot int32
	at   uint64 // 0: not at all
}

func (s *sleeper) timer() *int32 { return &s.slot }

// Whatever is set, moved and dropped, the first to be woken is one whose time comes first, and each
// knows its time: no place ends late because others came and went.
func TestTimersWakeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers[*sleeper]
		all := make([]*sleeper, 12)
		for i := range all {
			all[i] = &sleeper{}
		}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			s := rapid.SampledFrom(all).Draw(t, "who")
			if rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				h.drop(s)
				s.at = 0
			} else {
				s.at = rapid.Uint64Range(1, 20).Draw(t, "at")
				h.set(s, s.at)
			}
			armed, first := 0, uint64(0)
			for _, s := range all {
				if at, any := h.at(s); any != (s.at != 0) || at != s.at {
					t.Fatalf("woken at %d, %v, want %d", at, any, s.at)
				}
				if s.at != 0 {
					armed++
					if first == 0 || s.at < first {
						first = s.at
					}
				}
			}
			if len(h) != armed {
				t.Fatalf("%d timers of %d", len(h), armed)
			}
			if armed > 0 && h[0].at != first {
				t.Fatalf("the first is woken at %d, want %d", h[0].at, first)
			}
		}
	})
}
