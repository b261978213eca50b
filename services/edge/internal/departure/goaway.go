package departure

import (
	"math/rand/v2"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// goAway is what clients are told that shall go.
type goAway struct {
	reason    string
	jitterMS  uint32
	addresses func() []string // nil: none are known
}

// frame is another for each client: it comes back at a time of its own, and the first place named
// is not everybody's first.
func (g *goAway) frame() *wirev1.GoAway {
	m := &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, Reason: g.reason, ReconnectAfterMs: rand.Uint32N(g.jitterMS + 1)}
	if g.addresses == nil {
		return m
	}
	if all := g.addresses(); len(all) > 0 {
		at := rand.IntN(len(all))
		m.Addresses = append(append(make([]string, 0, len(all)), all[at:]...), all[:at]...)
	}
	return m
}
