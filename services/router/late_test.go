package router

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A router for which every moment is late comes to refuse all of a batch, over gRPC: one answer
// each, with a time to come back.
func TestARouterWithoutTimeAnswersWhatItRefuses(t *testing.T) {
	m := startMesh(t, func(s *Settings) { s.ShedLag, s.ProducerRate = 2, 1_000_000 })
	p := openPipe(t, m)
	const n = 300
	for next, refused := uint64(1), 0; refused < n; next += n { // the pipe has a deadline
		var batch []*pushmeshv1.PublishStreamRequest_Item
		for ref := next; ref < next+n; ref++ {
			it := item(ref, "live/1")
			it.Message.Priority = uint32(ref % 10)
			batch = append(batch, it)
		}
		p.send(&pushmeshv1.PublishStreamRequest{Batch: batch})
		clear(p.got)
		p.answers(n)
		refused = 0
		for _, it := range batch {
			r := p.got[it.GetRef()]
			if r.GetCode() != wirev1.Code_CODE_OVERLOADED {
				continue
			}
			refused++
			if r.GetRetryAfter().AsDuration() <= 0 || r.GetError() == "" {
				t.Fatalf("%v", r)
			}
		}
	}
}
