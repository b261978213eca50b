// Package publish takes messages from backends and from edges' clients: it checks and admits them,
// has durable ones appended, and routes them to whoever wants them after the commit.
package publish

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/appender"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

// Routes is what a publisher needs of the switchboard. Neither call blocks.
type Routes interface {
	Route(d *edgequeue.Delivery) int
	CheckTopic(topic string)
	// Reachable is nil while edges can be reached.
	Reachable() error
	// Cork and Uncork enclose several calls of Route that follow each other.
	Cork()
	Uncork()
}

// Policies says how topics behave now (policy.Watch).
type Policies interface{ Table() *policy.Table }

// Config of a Publisher.
type Config struct {
	Policies  Policies
	Admission *admission.Admission
	Appender  *appender.Appender
	Routes    Routes
	Telemetry *telemetry.Telemetry
	// Waited, if any, is told how long each request of a stream waited for its turn.
	Waited func(time.Duration)
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
}

// Publisher is safe for concurrent use.
type Publisher struct {
	cfg     Config
	metrics *metrics
	tracer  trace.Tracer
	tracing bool // spans go somewhere
	ids     ids
}

// New makes a publisher.
func New(cfg Config) *Publisher {
	if cfg.Clock == nil {
		cfg.Clock = func(now time.Time) time.Time { return now }
	}
	_, off := cfg.Telemetry.Tracers.(noop.TracerProvider)
	return &Publisher{
		cfg: cfg, metrics: newMetrics(cfg.Telemetry.Registry),
		tracer: cfg.Telemetry.Tracer("services/router"), tracing: !off,
	}
}

// Result of one message.
type Result struct {
	Code       wirev1.Code
	Error      string
	RetryAfter time.Duration
	MessageID  []byte
	Seq, Epoch uint64
	Duplicate  bool
	// Scheduled: it waits for its deliver_at.
	Scheduled bool
	// Topics has one result for each of PublishRequest.topics.
	Topics []*pushmeshv1.TopicResult
}

// Receiver is told the result of the message ref, once, from any goroutine. It must not block.
type Receiver interface {
	Published(ref uint64, res *Result)
}

// Message is what somebody wants published.
type Message struct {
	// Context carries the span that the message belongs to.
	Context context.Context
	// Producer is who is held to the limits; From is the user who publishes over the edge, empty
	// for backends.
	Producer, From string
	// By is the backend, which may publish what its roles say; nil: everything, or no backend.
	By *backends.Caller
	// FromClient is true where only namespaces that allow it take the message.
	FromClient bool
	// Origin of a client (identity.Origin), which may not want an echo; 0: it is none.
	Origin      uint64
	Request     *pushmeshv1.PublishRequest
	ProducerID  []byte
	ProducerSeq uint64
	// SettledSeq and SentMsAgo are as in PublishStreamRequest.
	SettledSeq, SentMsAgo uint64
	// Written says that a transaction wrote it into the outbox; nil: it comes from its producer.
	Written *Written
	// Patient: rather than being refused for its producer's own limits alone, it is offered again.
	Patient bool
	Ref     uint64
	To      Receiver
}

// Publish takes a message; its Receiver is told the result, maybe before Publish returns. refused
// says that admission did not let it in.
func (p *Publisher) Publish(m *Message) (refused bool) {
	refused, _ = p.offer(time.Now(), m)
	return refused
}

// offer is Publish. With later a Patient message was not taken, and its Receiver is told nothing.
func (p *Publisher) offer(now time.Time, m *Message) (refused bool, later *admission.Later) {
	if err := checkMessage(m.Request); err != nil {
		p.refuse(now, m, err)
		return false, nil
	}
	if err := checkProducer(m.ProducerID, m.ProducerSeq, m.SettledSeq); err != nil {
		p.refuse(now, m, err)
		return false, nil
	}
	if len(m.Request.GetTopics()) > 0 {
		return p.publishMany(now, m), nil
	}
	pol, err := p.check(m, m.Request.GetTopic())
	if err != nil {
		p.refuse(now, m, err)
		return false, nil
	}
	slot, err := p.cfg.Admission.Admit(now, ask(m, pol, m.Request.GetTopic()))
	if errors.As(err, &later) {
		return false, later
	}
	if err != nil {
		p.refuse(now, m, err)
		return true, nil
	}
	l := &singleJob{}
	if err := p.encode(now, m, &l.message); err != nil {
		slot.Release()
		p.refuse(now, m, err)
		return false, nil
	}
	p.submit(&l.job, now, m, &l.message, m.Request.GetTopic(), pol, slot, m.Ref, m.To)
	return false, nil
}

// ask is what a message needs. What was committed is not refused for who wrote it.
func ask(m *Message, pol *policy.Policy, topic string) admission.Ask {
	q := admission.Ask{
		Producer: m.Producer, Policy: pol, Priority: m.Request.GetPriority(), Messages: 1, Bytes: weight(len(m.Request.GetPayload())),
		Topic: topic, Durable: pol.Durable, Patient: m.Patient,
	}
	if m.Written != nil {
		q.Producer = ""
	}
	return q
}

// weight is about what a message in work takes up: as it came, as it is stored, and what belongs to
// it.
func weight(payload int) int { return 1024 + 2*payload }

// check refuses a topic, or the message there.
func (p *Publisher) check(m *Message, topic string) (*policy.Policy, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	if m.By != nil {
		if who := m.By.Who(); !who.May(backends.Publisher, topic) {
			return nil, who.Refuse(backends.Publisher, topic)
		}
	}
	pol := p.cfg.Policies.Table().For(topic)
	if pol.Refusal != nil {
		return nil, pol.Refusal
	}
	if m.FromClient && !pol.ClientPublish {
		return nil, code.New(wirev1.Code_CODE_FORBIDDEN, "namespace "+pol.Prefix+" does not let clients publish: give it client_publish (pushmesh namespace set "+pol.Prefix+" --client-publish)")
	}
	if m.Request.GetDeliverAt() != nil && !pol.Durable {
		return nil, code.New(wirev1.Code_CODE_UNSUPPORTED, "deliver_at: messages are scheduled for durable topics only, and namespace "+pol.Prefix+" is ephemeral")
	}
	if m.Request.GetDedupeKey() != "" && !pol.Durable && m.Written == nil {
		// what a transaction wrote has a key of its own
		return nil, code.New(wirev1.Code_CODE_UNSUPPORTED, "dedupe_key: namespace "+pol.Prefix+" is ephemeral, and dedupe keys are kept for durable topics only: leave it out")
	}
	return pol, checkPayload(pol, m.Request.GetPayload())
}

// encodedMessage is a message in the form in which every subscriber gets it.
type encodedMessage struct {
	id          []byte
	body        []byte
	publishedAt uint64
	expiresAt   uint64
	traceparent string
	span        trace.Span // nil: none

	idBytes [16]byte // where id lies if it is a new one
}

// encode encodes the message, once for all subscribers.
func (p *Publisher) encode(now time.Time, m *Message, s *encodedMessage) (err error) {
	if err := p.assignID(m, s); err != nil {
		return err
	}
	s.publishedAt, s.expiresAt = uint64(now.UnixMicro()), expiry(p.cfg.Clock(now), m.Request)
	features, err := encodeFeatures(m)
	if err != nil {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "features can't be encoded: "+err.Error())
	}
	s.traceparent, s.span = p.trace(m)
	s.body, err = wire.Body(&wirev1.Message{
		Payload: m.Request.GetPayload(), PublishedAt: s.publishedAt, Id: s.id, Headers: m.Request.GetHeaders(),
		Priority: m.Request.GetPriority(), Traceparent: s.traceparent, From: m.From, Mesh: features,
	})
	if err != nil {
		s.endSpan()
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "message can't be encoded: "+err.Error())
	}
	return nil
}

// assignID gives the message its id: the one that it was written with, or a new one.
func (p *Publisher) assignID(m *Message, s *encodedMessage) error {
	if m.Written != nil {
		s.id = m.Written.MessageID
		return nil
	}
	if err := p.ids.next(&s.idBytes); err != nil {
		return code.New(wirev1.Code_CODE_INTERNAL, "message id: "+err.Error())
	}
	s.id = s.idBytes[:]
	return nil
}

// trace returns the message's trace, and opens a span that lasts until the message is routed, if
// spans are exported.
func (p *Publisher) trace(m *Message) (traceparent string, span trace.Span) {
	ctx := m.Context
	if tp := m.Request.GetTraceparent(); tp != "" {
		ctx = telemetry.WithTraceparent(ctx, tp)
	}
	if p.tracing {
		ctx, span = p.tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindProducer))
	}
	return telemetry.Traceparent(ctx), span
}

func (s *encodedMessage) endSpan() {
	if s.span != nil {
		s.span.End()
	}
}

func (p *Publisher) refuse(began time.Time, m *Message, err error) {
	p.metrics.published(began, code.Of(err))
	m.To.Published(m.Ref, refusal(err))
}

func (p *Publisher) waited(d time.Duration) {
	if p.cfg.Waited != nil {
		p.cfg.Waited(d)
	}
}

// refuseLate counts n messages of a producer that this router has no time for.
func (p *Publisher) refuseLate(producer string, n int) *Result {
	res := refusal(p.cfg.Admission.RefuseLate(time.Now(), producer, n))
	p.metrics.refused(res.Code, n)
	return res
}

func refusal(err error) *Result {
	e := code.From(err)
	return &Result{Code: e.Code, Error: e.Message, RetryAfter: e.RetryAfter}
}

// Err is nil for a message that was published.
func (r *Result) Err() error {
	if r.Code == wirev1.Code_CODE_OK {
		return nil
	}
	return &code.Error{Code: r.Code, Message: r.Error, RetryAfter: r.RetryAfter}
}
