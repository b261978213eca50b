package claims

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A group of shards to take is of those that are wanted and were not tried in this round: the first
// of them and, up to the size, all others that are to be taken the same way; by force only what
// another store has kept for long enough.
func TestAGroupOfShardsIsTakenOneWay(t *testing.T) {
	now := time.Unix(1000, 0)
	rapid.Check(t, func(t *rapid.T) {
		s := &shards{size: rapid.IntRange(1, 6).Draw(t, "size")}
		var gentle, forced []int
		for n := range 12 {
			s.owned[n] = rapid.Uint64Range(0, 2).Draw(t, "owned")
			s.taken[n] = rapid.SampledFrom([]uint64{0, 1, 2, again}).Draw(t, "taken")
			s.tried[n] = rapid.IntRange(0, 3).Draw(t, "tried") == 0
			s.since[n] = rapid.SampledFrom([]time.Time{{}, now.Add(1 - polite), now.Add(-polite), now}).Draw(t, "since")
			if want := s.owned[n] != 0 && s.owned[n] != s.taken[n]; s.wanted(n) != want {
				t.Fatalf("owned %d, taken %d: wanted %v", s.owned[n], s.taken[n], !want)
			}
			switch {
			case s.owned[n] == 0 || s.owned[n] == s.taken[n] || s.tried[n]:
			case s.since[n].Equal(now.Add(-polite)):
				forced = append(forced, n)
			default:
				gentle = append(gentle, n)
			}
		}
		want := gentle
		byForce := len(forced) > 0 && (len(gentle) == 0 || forced[0] < gentle[0])
		if byForce {
			want = forced
		}
		want = want[:min(len(want), s.size)]
		if got, force := s.group(now); !slices.Equal(got, want) || force != byForce {
			t.Fatalf("taken: %v, by force %v; want %v, %v", got, force, want, byForce)
		}
	})
}
