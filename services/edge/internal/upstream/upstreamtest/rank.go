package upstreamtest

import (
	"slices"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// ranks are windows and rankings that were asked for, and not answered.
type ranks struct {
	gathering []exchange.Gathering
	rankings  []*exchange.Ranking
}

// Gather implements exchange.Ranks: the window is over when a test says so.
func (m *Mesh) Gather(g exchange.Gathering) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranks.gathering = append(m.ranks.gathering, g)
}

// Rank implements exchange.Ranks: a test answers.
func (m *Mesh) Rank(r *exchange.Ranking) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranks.rankings = append(m.ranks.rankings, r)
}

// EndWindows ends those that gather now, and says how many.
func (m *Mesh) EndWindows() int {
	m.mu.Lock()
	ended := m.ranks.gathering
	m.ranks.gathering = nil
	m.mu.Unlock()
	for _, g := range ended {
		m.send(exchange.Gathered{Serial: g.Serial})
	}
	return len(ended)
}

// Rankings takes those that wait for an answer.
func (m *Mesh) Rankings() []*exchange.Ranking {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.ranks.rankings
	m.ranks.rankings = nil
	return asked
}

// Answer a ranking: score says what a message is worth to a profile, and whether the policy's
// filter lets it pass.
func (m *Mesh) Answer(r *exchange.Ranking, score func(*exchange.Profile, *exchange.Message) (float64, bool)) {
	out := exchange.Ranked{Serial: r.Serial}
	for _, one := range r.Members {
		places := one.Places
		if places == nil {
			for i := range r.Messages {
				places = append(places, uint32(i))
			}
		}
		ranked := exchange.RankedMember{}
		for _, place := range places {
			if v, passes := score(one.Profile, r.Messages[place]); passes {
				ranked.Best = append(ranked.Best, exchange.RankedPlace{Place: place, Score: v})
			} else {
				ranked.Filtered = append(ranked.Filtered, place)
			}
		}
		slices.SortStableFunc(ranked.Best, func(a, b exchange.RankedPlace) int {
			switch {
			case a.Score > b.Score:
				return -1
			case a.Score < b.Score:
				return 1
			}
			return 0
		})
		ranked.Best = ranked.Best[:min(len(ranked.Best), int(one.TopK))]
		out.Members = append(out.Members, ranked)
	}
	m.send(out)
}

// Fail answers a ranking with an error.
func (m *Mesh) Fail(r *exchange.Ranking, err error) {
	m.send(exchange.Ranked{Serial: r.Serial, Err: err})
}
