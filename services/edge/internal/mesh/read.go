package mesh

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/history"
)

// Read answers from the recent messages, else from the log.
func (m *Mesh) Read(loop uint16, topic string, epoch, from, to uint64, maxBytes int) {
	from = max(from, 1)
	admitted := m.ops.TryDo(4*readsWaiting, func() {
		if r, ok := m.feed.Recent(topic, epoch, from, to, maxBytes); ok {
			m.handOn()
			m.Post(loop, r)
			return
		}
		k := history.Key{Topic: topic, Epoch: epoch, From: from, To: to, MaxBytes: maxBytes}
		m.resumes.Read(k, func(r exchange.Range) {
			m.ops.Do(func() {
				m.handOn() // what was delivered by now is known to the answer
				m.Post(loop, m.feed.Ahead(r))
			})
		})
	})
	if !admitted {
		m.stats.RefusedReads.Add(1)
		m.Post(loop, exchange.Range{Topic: topic, From: from, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too much waits at this edge")})
	}
}
