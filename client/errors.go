package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/dialfault"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Code is the one closed list of reasons, the same on the wire, in gRPC, logs and metrics.
type Code = wirev1.Code

// ErrClosed is returned by every method after Close.
var ErrClosed = errors.New("pushmesh: closed")

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
	name := strings.TrimPrefix(e.Code.String(), "CODE_")
	if e.Message == "" {
		return "pushmesh: " + name
	}
	return "pushmesh: " + name + ": " + e.Message
}

// Retryable reports whether the same, tried again later, can succeed.
func (e *Error) Retryable() bool { return retryable(e.Code) }

// CodeOf is the reason inside err; CODE_OK for nil, CODE_INTERNAL where err is no Error.
func CodeOf(err error) Code {
	if err == nil {
		return wirev1.Code_CODE_OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return wirev1.Code_CODE_INTERNAL
}

// NackAfter makes a handler's error that asks for the redelivery after d and not before.
func NackAfter(d time.Duration, err error) error { return &nackError{after: d, err: err} }

type nackError struct {
	after time.Duration
	err   error
}

func (e *nackError) Error() string { return fmt.Sprintf("again after %v: %v", e.after, e.err) }
func (e *nackError) Unwrap() error { return e.err }

// retryable is WIRE's list "try again as is".
func retryable(c Code) bool {
	if _, known := wirev1.Code_name[int32(c)]; !known {
		return true // of a later version: it counts as INTERNAL
	}
	switch c {
	case wirev1.Code_CODE_HANDSHAKE_TIMEOUT, wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED,
		wirev1.Code_CODE_SLOW_CONSUMER, wirev1.Code_CODE_IDLE_TIMEOUT, wirev1.Code_CODE_UNHEALTHY,
		wirev1.Code_CODE_DRAINING, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_INTERNAL,
		wirev1.Code_CODE_TOO_MANY_CONNECTIONS, wirev1.Code_CODE_ACK_TIMEOUT:
		return true
	}
	return false
}

// unsent is the refusal of a frame that could not be sent.
func unsent(u *link.Unsendable) *Error { return &Error{Code: u.Code, Message: u.Message} }

// fromStatus finds the reason of a gRPC call's error. The code of google.rpc.ErrorInfo wins over
// the status's.
func fromStatus(err error) *Error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	st, ok := status.FromError(err)
	if !ok {
		return &Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: err.Error()}
	}
	e := &Error{Code: fromGRPC(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if c, ok := wirev1.Code_value["CODE_"+d.GetReason()]; ok {
				e.Code = Code(c)
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// connFault is fromStatus of a call to addr: what gRPC says of a connection that can't be made
// becomes a sentence.
func connFault(addr string, err error) *Error {
	e := fromStatus(err)
	if e.Code == wirev1.Code_CODE_UNAVAILABLE {
		e.Message, _ = dialfault.Explain(addr, e.Message)
	}
	return e
}

func fromGRPC(c codes.Code) Code {
	switch c {
	case codes.InvalidArgument, codes.OutOfRange:
		return wirev1.Code_CODE_INVALID_ARGUMENT
	case codes.Unauthenticated:
		return wirev1.Code_CODE_UNAUTHENTICATED
	case codes.PermissionDenied:
		return wirev1.Code_CODE_FORBIDDEN
	case codes.Unimplemented:
		return wirev1.Code_CODE_UNSUPPORTED
	case codes.ResourceExhausted:
		return wirev1.Code_CODE_OVERLOADED
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return wirev1.Code_CODE_INTERNAL
	}
	return wirev1.Code_CODE_UNAVAILABLE
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
