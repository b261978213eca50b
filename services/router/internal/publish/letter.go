package publish

import (
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// letterWindow is how long a replayed letter is recognised by its key, in seconds. It matters only
// where several replay one letter at a time: the append that publishes a letter removes it.
const letterWindow = 24 * 3600

// Replay publishes a dead letter, whose message is m, to the topic that it came from: its bytes as
// they are, with a new seq and no TTL. to is told the result as of Publish.
func (p *Publisher) Replay(l *meshv1.DeadLetter, m *wirev1.Message, ref uint64, to Receiver) {
	now := time.Now()
	refuse := func(err error) {
		p.metrics.published(now, code.Of(err))
		to.Published(ref, refusal(err))
	}
	pol := p.cfg.Policies.Table().For(l.GetTopic())
	if pol.Refusal != nil {
		refuse(pol.Refusal)
		return
	}
	if !pol.Durable {
		refuse(code.New(wirev1.Code_CODE_UNSUPPORTED, "namespace "+pol.Prefix+" is ephemeral now: the message would not be stored"))
		return
	}
	if len(m.GetId()) != messageIDSize {
		refuse(code.New(wirev1.Code_CODE_INTERNAL, "the dead letter's message has no id"))
		return
	}
	slot, err := p.cfg.Admission.Admit(now, admission.Ask{Topic: l.GetTopic(), Durable: true, Messages: 1, Bytes: weight(len(l.GetBody()))})
	if err != nil {
		refuse(err)
		return
	}
	s := &encodedMessage{id: m.GetId(), body: l.GetBody(), publishedAt: m.GetPublishedAt(), traceparent: m.GetTraceparent()}
	j := &job{publisher: p, message: s, slot: slot, began: now, ref: ref, to: to}
	j.item.At = now
	a := &j.append
	a.Topic, a.Body, a.MessageId, a.PublishedAt, a.Traceparent = l.GetTopic(), s.body, s.id, s.publishedAt, s.traceparent
	a.DeadLetter, a.DedupeKey, a.DedupeWindowS = l.GetId(), fmt.Sprintf("\x00dead-letter/%d/%d", l.GetId(), l.GetAt()), letterWindow
	j.item.Req, j.item.Sink = a, j
	if err := p.cfg.Appender.Submit(&j.item); err != nil {
		j.finish(refusal(err))
	}
}
