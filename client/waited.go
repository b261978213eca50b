package pushmesh

import (
	"context"
	"errors"
	"strings"
)

// waitError is the end of a context while something was waited for, with what stood in the way.
type waitError struct {
	what     string // did not happen: "not subscribed"
	why, end error
}

func (e *waitError) Error() string {
	return "pushmesh: " + e.what + ": " + strings.TrimPrefix(e.why.Error(), "pushmesh: ") + " (" + e.end.Error() + ")"
}

func (e *waitError) Unwrap() []error { return []error{e.end, e.why} }

// waited is the error of ctx, with the reason where one is known.
func waited(ctx context.Context, what string, why error) error {
	if why == nil || errors.Is(why, ctx.Err()) {
		return ctx.Err()
	}
	return &waitError{what: what, why: why, end: ctx.Err()}
}

// fault is why there is no connection; nil where there is one, or none was tried yet. Called with
// s.mu held.
func (s *Subscriber) fault() error {
	if s.link != nil {
		return nil
	}
	return s.failure
}

// faultOf is fault, of callers without s.mu.
func (s *Subscriber) faultOf() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault()
}

// failed notes why an attempt to connect failed, or how a connection ended.
func (s *Subscriber) failed(err error) {
	if s.ctx.Err() != nil {
		return // it is closed
	}
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
}

// fault is why the producer has no router; nil where it has one, or none was tried yet.
func (p *Producer) fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.online {
		return nil
	}
	return p.failure
}
