package mesh

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Gather implements exchange.Ranks.
func (m *Mesh) Gather(g exchange.Gathering) {
	m.Post(g.Loop, exchange.Gathered{Serial: g.Serial})
}

// Rank implements exchange.Ranks.
func (m *Mesh) Rank(r *exchange.Ranking) {
	m.Post(r.Loop, exchange.Ranked{Serial: r.Serial, Err: code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the edge ranks nothing")})
}
