package publish

import (
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// many gathers the results of one payload for many topics.
type many struct {
	results   []*pushmeshv1.TopicResult
	remaining atomic.Int64
	id        []byte
	ref       uint64
	to        Receiver
}

// Published implements Receiver for one topic: ref is its place.
func (g *many) Published(ref uint64, res *Result) {
	g.results[ref] = &pushmeshv1.TopicResult{Seq: res.Seq, Epoch: res.Epoch, Duplicate: res.Duplicate, Code: res.Code, Error: res.Error}
	if g.remaining.Add(-1) == 0 {
		g.to.Published(g.ref, &Result{MessageID: g.id, Topics: g.results})
	}
}

// maxReasons is how many bytes of reasons one answer has: that of 10,000 topics is to fit into 4
// MiB, which gRPC clients take. Refusals beyond it have their code alone.
const maxReasons = 256 << 10

// stored refuses a topic whose store can't keep up.
func (p *Publisher) stored(now time.Time, m *Message, pol *policy.Policy, topic string) error {
	if !pol.Durable {
		return nil
	}
	return p.cfg.Admission.Stored(now, ask(m, pol, topic))
}

// publishMany publishes one payload to many topics, which share the message's id. Topics are
// admitted by namespace, all or none; one refused has its reason in its result.
func (p *Publisher) publishMany(now time.Time, m *Message) (refused bool) {
	topics := m.Request.GetTopics()
	s := &encodedMessage{}
	if err := p.encode(now, m, s); err != nil {
		p.refuse(now, m, err)
		return false
	}
	g := &many{results: make([]*pushmeshv1.TopicResult, len(topics)), id: s.id, ref: m.Ref, to: m.To}
	g.remaining.Store(int64(len(topics)))
	told := 0
	refuse := func(i int, err error) {
		if told += len(err.Error()); told > maxReasons {
			err = code.New(code.Of(err), "")
		}
		p.refuse(now, &Message{Ref: uint64(i), To: g}, err)
	}
	groups := map[*policy.Policy][]int{}
	for i, topic := range topics {
		pol, err := p.check(m, topic)
		if err != nil {
			refuse(i, err)
			continue
		}
		groups[pol] = append(groups[pol], i)
	}
	// The span of all ends with the call's own part: topics are answered one by one.
	s.endSpan()
	s.span = nil
	for pol, places := range groups {
		q := ask(m, pol, "")
		q.Topic, q.Messages, q.Bytes = "", len(places), weight(0)+len(m.Request.GetPayload())/len(places)
		slot, err := p.cfg.Admission.Admit(now, q)
		if err != nil {
			refused = true
			for _, i := range places {
				refuse(i, err)
			}
			continue
		}
		for _, i := range places {
			if err := p.stored(now, m, pol, topics[i]); err != nil {
				refused = true
				slot.One().Release()
				refuse(i, err)
				continue
			}
			p.submit(&job{}, now, m, s, topics[i], pol, slot.One(), uint64(i), g)
		}
	}
	return refused
}
