package pushmesh

import (
	"context"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/publishing"
	"github.com/pushmesh/pushmesh/client/internal/renewal"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Publish publishes over the subscriber's connection and waits for the answer; it waits for a
// connection and for room in the edge's publish window too, in the order of the calls. When the
// connection breaks first, a message with a DedupeKey that is not Ephemeral is published again, in
// that order, too; otherwise the *Error says Unknown, as it does where ctx or the Subscriber ends
// after the message was sent, and where a message that is published again is refused. Backends use
// a Producer.
func (s *Subscriber) Publish(ctx context.Context, m ClientMessage) (Result, error) {
	if e := m.check(); e != nil {
		return Result{}, e
	}
	s.mu.Lock()
	switch {
	case s.closing || s.err != nil:
		defer s.mu.Unlock()
		return Result{}, s.endError()
	case s.inside.OnReader():
		s.mu.Unlock()
		return Result{}, errWaitByHandler
	}
	r, l := roomFor(s, "publishing", publishing.New), s.link
	p, flush := r.Add(&wirev1.Publish{Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey}, m.DedupeKey != "" && !m.Ephemeral)
	s.unlock()
	if flush {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
	select {
	case a := <-p.Done():
		return published(a)
	case <-ctx.Done():
	}
	s.mu.Lock()
	sent, why := r.Withdraw(p), s.fault()
	s.mu.Unlock()
	select {
	case a := <-p.Done(): // it was answered meanwhile
		return published(a)
	default:
	}
	if sent {
		return Result{}, &unknownOutcome{err: ctx.Err(), why: why}
	}
	return Result{}, waited(ctx, "not published", why)
}

// published is what came of a Publish.
func published(a publishing.Answer) (Result, error) {
	if a.Err != nil {
		return Result{}, unanswered(a.Err)
	}
	p := a.Published
	return Result{ID: idOf(p.GetMessageId()), Seq: p.GetSeq(), Epoch: p.GetEpoch(), Duplicate: p.GetDuplicate()}, nil
}

// unanswered is the error of a request that the mesh has not answered, or refused.
func unanswered(err error) error {
	var bad *link.Unsendable
	var open *publishing.Open
	switch {
	case errors.As(err, &open):
		var e *Error
		if err = unanswered(open.Err); !errors.As(err, &e) || e.Code == CodeUnavailable {
			return &unknownOutcome{err: err}
		}
		return &Error{Code: e.Code, Message: e.Message + " (but it was sent before, and may have been published then)", RetryAfter: e.RetryAfter, Unknown: true}
	case errors.As(err, &bad):
		return unsent(bad)
	case errors.Is(err, publishing.ErrBroken):
		return &Error{Code: CodeUnavailable, Message: err.Error(), Unknown: true}
	case errors.Is(err, renewal.ErrNoConnection):
		return &Error{Code: CodeUnavailable, Message: err.Error()}
	}
	return err
}

// RefreshToken hands a new token, of the same user, to the connection that there is, and returns
// when it ends. A refusal leaves the connection as it was, with the token before; where the
// connection, or ctx, ends before the answer, the *Error says Unknown. Without a connection it is
// UNAVAILABLE: the next one has a token of SubscriberConfig.Token. It is for programs that want no
// break when a token ends: without it, the connection is then made again.
func (s *Subscriber) RefreshToken(ctx context.Context, token string) (expires time.Time, err error) {
	s.mu.Lock()
	switch {
	case s.closing || s.err != nil:
		defer s.mu.Unlock()
		return time.Time{}, s.endError()
	case s.inside.OnReader():
		s.mu.Unlock()
		return time.Time{}, errWaitByHandler
	}
	answered, l := roomFor(s, "renewal", renewal.New).Ask(token), s.link
	s.unlock()
	if l != nil {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
	select {
	case a := <-answered:
		switch {
		case a.Open:
			return time.Time{}, &unknownOutcome{what: tokenTaken, err: a.Err}
		case a.Err != nil:
			return time.Time{}, unanswered(a.Err)
		}
		return time.UnixMicro(int64(a.Refreshed.GetExpiresAt())), nil
	case <-ctx.Done():
		return time.Time{}, &unknownOutcome{what: tokenTaken, err: ctx.Err(), why: s.faultOf()}
	}
}

const tokenTaken = "the token may have been taken"
