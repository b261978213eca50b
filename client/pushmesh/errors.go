package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/status"
	"github.com/pushmesh/pushmesh/proto/dialfault"
)

// ErrClosed is returned by every method after Close.
var ErrClosed = errors.New("pushmesh: closed")

// ErrNoToken is for SubscriberConfig.Token: there will be none any more, as after a log-out. It
// ends the Subscriber, where another error is an attempt to connect that failed.
var ErrNoToken = errors.New("pushmesh: there is no token any more")

// Error is a refusal by the mesh, with its reason.
type Error struct {
	Code    Code
	Message string
	// RetryAfter above 0 says when trying again may help.
	RetryAfter time.Duration
	// Unknown is true where the mesh may have done what was asked: the connection broke before the
	// answer.
	Unknown bool
}

func (e *Error) Error() string {
	if e.Message == "" {
		return "pushmesh: " + e.Code.String()
	}
	return "pushmesh: " + e.Code.String() + ": " + e.Message
}

// Is reports whether target names the reason: ErrForbidden and the like.
func (e *Error) Is(target error) bool {
	r, ok := target.(reason)
	return ok && Code(r) == e.Code
}

// Retryable reports whether the same, tried again later, can succeed.
func (e *Error) Retryable() bool { return e.Code.Retryable() }

// ConfigError is a configuration or an option that can't work. Nothing was asked of the mesh. Its
// code is INVALID_ARGUMENT.
type ConfigError struct {
	// Field that is wrong: "SubscriberConfig.Addrs", "WithGroupKey".
	Field string
	// Problem with it, as the end of a sentence that begins with the field.
	Problem string
}

func (e *ConfigError) Error() string { return "pushmesh: " + e.Field + " " + e.Problem }

// Is reports whether target is ErrInvalidArgument.
func (e *ConfigError) Is(target error) bool { return target == ErrInvalidArgument }

func misconfigured(field, format string, args ...any) *ConfigError {
	return &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// CodeOf is the reason inside err: CodeOK for nil, CodeNone where nobody has refused anything, as
// at the end of a context. A context's end while there was no connection has the code of what
// refused that, or CodeUnavailable.
func CodeOf(err error) Code {
	var e *Error
	var c *ConfigError
	var w *waitError
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &c):
		return CodeInvalidArgument
	case errors.As(err, &w):
		return CodeUnavailable
	}
	return CodeNone
}

// NackAfter makes a handler's error that asks for the redelivery after d and not before.
func NackAfter(d time.Duration, err error) error { return &nackError{after: d, err: err} }

type nackError struct {
	after time.Duration
	err   error
}

func (e *nackError) Error() string { return fmt.Sprintf("again after %v: %v", e.after, e.err) }
func (e *nackError) Unwrap() error { return e.err }

// unsent is the refusal of a frame that could not be sent.
func unsent(u *link.Unsendable) *Error { return &Error{Code: Code(u.Code), Message: u.Message} }

// fromStatus finds the reason of a gRPC call's error.
func fromStatus(err error) *Error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	c, message, retryAfter := status.Of(err)
	return &Error{Code: Code(c), Message: message, RetryAfter: retryAfter}
}

// connFault is fromStatus of a call to addr: what gRPC says of a connection that can't be made
// becomes a sentence.
func connFault(addr string, err error) *Error {
	e := fromStatus(err)
	if e.Code == CodeUnavailable {
		e.Message, _ = dialfault.Explain(addr, e.Message)
	}
	return e
}

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
