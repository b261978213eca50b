package publish

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/appender"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

// natsRetry is when a reconnect may have happened.
const natsRetry = time.Second

// maxSentMsAgo is as good as for ever.
const maxSentMsAgo = 1 << 40

// job is one message for one topic on its way through the store.
type job struct {
	publisher *Publisher
	message   *encodedMessage
	slot      admission.Slot
	began     time.Time
	ref       uint64
	to        Receiver
	item      appender.Item
	append    meshv1.AppendItem
}

// singleJob is a message for one topic, in one allocation with all that it needs.
type singleJob struct {
	message encodedMessage
	job     job
}

// submit sends an admitted message on its way; the receiver hears of it once.
func (p *Publisher) submit(j *job, began time.Time, m *Message, s *encodedMessage, topic string, pol *policy.Policy, slot admission.Slot, ref uint64, to Receiver) {
	*j = job{publisher: p, message: s, slot: slot, began: began, ref: ref, to: to}
	if !pol.Durable {
		j.append.Topic = topic
		if m.Written != nil && m.Written.Repeated { // at most once
			j.finish(&Result{MessageID: s.id, Duplicate: true})
			return
		}
		j.finish(j.routeEphemeral())
		return
	}
	a := &j.append
	a.Topic, a.Body, a.MessageId = topic, s.body, s.id
	a.PublishedAt, a.ExpiresAt, a.Traceparent = s.publishedAt, s.expiresAt, s.traceparent
	a.DedupeKey = m.Request.GetDedupeKey()
	if m.Written != nil {
		a.DedupeWindowS, a.KeySince = writtenWindow, m.Written.KeySince
	}
	if at := m.Request.GetDeliverAt(); at != nil {
		a.DeliverAt, a.TtlUs = uint64(at.AsTime().UnixMicro()), uint64(m.Request.GetTtl().AsDuration().Microseconds())
	}
	if m.ProducerSeq > 0 {
		a.ProducerId, a.ProducerSeq, a.SettledSeq = m.ProducerID, m.ProducerSeq, m.SettledSeq
		j.item.Since = began.Add(-time.Duration(min(m.SentMsAgo, maxSentMsAgo)) * time.Millisecond)
	}
	j.item.Req, j.item.Sink, j.item.At = a, j, began
	if err := p.cfg.Appender.Submit(&j.item); err != nil {
		j.finish(refusal(err))
	}
}

// routeEphemeral refuses where no edge can be reached: what the table knows may be old by now, and
// there is no log to repair from.
func (j *job) routeEphemeral() *Result {
	p := j.publisher
	if err := p.cfg.Routes.Reachable(); err != nil {
		return &Result{Code: wirev1.Code_CODE_UNAVAILABLE, Error: "ephemeral messages can't be sent without NATS: " + err.Error(), RetryAfter: natsRetry}
	}
	if p.cfg.Routes.Route(&edgequeue.Delivery{Topic: j.append.GetTopic(), ExpiresAt: j.message.expiresAt, Body: j.message.body}) == 0 {
		p.metrics.noSubscriber.Inc()
	}
	return &Result{MessageID: j.message.id}
}

// Appended implements appender.Sink. Interest is looked up here, after the commit, and never
// before.
func (j *job) Appended(res *meshv1.AppendResult, unknown bool) {
	topic := j.append.GetTopic()
	if unknown {
		j.publisher.cfg.Routes.CheckTopic(topic)
	}
	switch {
	case res.GetCode() != wirev1.Code_CODE_OK:
		j.finish(&Result{
			Code: res.GetCode(), Error: res.GetError(), RetryAfter: time.Duration(res.GetRetryAfterMs()) * time.Millisecond,
		})
		return
	case res.GetScheduled(): // the store routes it when it is due
	case res.GetDuplicate():
		// What the log has under that seq is the first publish, which this one need not equal byte
		// for byte: edges that did not get it read it there.
		j.publisher.cfg.Routes.CheckTopic(topic)
	default:
		j.publisher.cfg.Routes.Route(&edgequeue.Delivery{
			Topic: topic, Epoch: res.GetEpoch(), Seq: res.GetSeq(), ExpiresAt: j.expiresAt(), Body: j.message.body,
		})
	}
	id := j.message.id
	if res.GetDuplicate() && len(res.GetMessageId()) > 0 {
		id = res.GetMessageId()
	}
	j.finish(&Result{MessageID: id, Seq: res.GetSeq(), Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(), Scheduled: res.GetScheduled()})
}

// expiresAt of what was appended now. Where the message was to be scheduled, for a time that had
// passed, its TTL runs from the append.
func (j *job) expiresAt() uint64 {
	if ttl := j.append.GetTtlUs(); ttl > 0 {
		return uint64(j.publisher.cfg.Clock(time.Now()).UnixMicro()) + ttl
	}
	return j.message.expiresAt
}

func (j *job) finish(res *Result) {
	if res.Code != wirev1.Code_CODE_OK && res.Error == "" {
		res.Error = code.Name(res.Code)
	}
	j.message.endSpan()
	j.slot.Release()
	j.publisher.metrics.published(j.began, res.Code)
	j.to.Published(j.ref, res)
}
