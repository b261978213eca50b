// Package code carries the closed list of reasons (pushmesh.wire.v1.Code) through Go errors
// and gRPC statuses.
package code

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Domain of the google.rpc.ErrorInfo that every status carries.
const Domain = "pushmesh"

// Error is a refusal with its reason. RetryAfter above 0 says when trying again may help.
type Error struct {
	Code       wirev1.Code
	Message    string
	RetryAfter time.Duration
}

func (e *Error) Error() string { return Name(e.Code) + ": " + e.Message }

// New makes an Error.
func New(c wirev1.Code, message string) *Error { return &Error{Code: c, Message: message} }

// Retry makes an Error that says when to try again.
func Retry(c wirev1.Code, after time.Duration, message string) *Error {
	return &Error{Code: c, Message: message, RetryAfter: after}
}

// Name of a code as it stands in logs, metrics and google.rpc.ErrorInfo: "BAD_TOPIC".
func Name(c wirev1.Code) string { return strings.TrimPrefix(c.String(), "CODE_") }

// Parse is the inverse of Name; false where there is no such code.
func Parse(name string) (wirev1.Code, bool) {
	v, ok := wirev1.Code_value["CODE_"+name]
	return wirev1.Code(v), ok
}

// GRPCStatus makes Error a gRPC status with ErrorInfo and, where it says when, RetryInfo.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(grpcCode(e.Code), e.Message)
	info := &errdetails.ErrorInfo{Reason: Name(e.Code), Domain: Domain}
	if e.RetryAfter > 0 {
		retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}
		if with, err := st.WithDetails(info, retry); err == nil {
			return with
		}
		return st
	}
	if with, err := st.WithDetails(info); err == nil {
		return with
	}
	return st
}

// From finds the reason of any error: an Error, a gRPC status of ours or another's, a context's
// end. A nil error is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return New(wirev1.Code_CODE_UNAVAILABLE, "deadline exceeded")
	}
	if errors.Is(err, context.Canceled) {
		return New(wirev1.Code_CODE_CANCELLED, "cancelled")
	}
	st, ok := status.FromError(err)
	if !ok {
		return New(wirev1.Code_CODE_INTERNAL, err.Error())
	}
	e = New(fromGRPC(st.Code()), st.Message())
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if c, ok := Parse(d.GetReason()); ok && d.GetDomain() == Domain {
				e.Code = c
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// Of is the code of From(err): OK for nil.
func Of(err error) wirev1.Code {
	if e := From(err); e != nil {
		return e.Code
	}
	return wirev1.Code_CODE_OK
}

// Retryable reports whether trying the same again, later, can help.
func Retryable(c wirev1.Code) bool {
	switch c {
	case wirev1.Code_CODE_HANDSHAKE_TIMEOUT, wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED,
		wirev1.Code_CODE_SLOW_CONSUMER, wirev1.Code_CODE_IDLE_TIMEOUT, wirev1.Code_CODE_UNHEALTHY,
		wirev1.Code_CODE_DRAINING, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_INTERNAL,
		wirev1.Code_CODE_TOO_MANY_CONNECTIONS, wirev1.Code_CODE_ACK_TIMEOUT:
		return true
	}
	return false
}

func grpcCode(c wirev1.Code) codes.Code {
	switch c {
	case wirev1.Code_CODE_OK:
		return codes.OK
	case wirev1.Code_CODE_UNAUTHENTICATED, wirev1.Code_CODE_TOKEN_EXPIRED:
		return codes.Unauthenticated
	case wirev1.Code_CODE_FORBIDDEN:
		return codes.PermissionDenied
	case wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS,
		wirev1.Code_CODE_TOO_MANY_CONNECTIONS, wirev1.Code_CODE_TOO_MANY_TOPICS, wirev1.Code_CODE_QUEUE_FULL,
		wirev1.Code_CODE_MEMORY_BUDGET, wirev1.Code_CODE_SLOW_CONSUMER:
		return codes.ResourceExhausted
	case wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_DRAINING:
		return codes.Unavailable
	case wirev1.Code_CODE_INTERNAL:
		return codes.Internal
	case wirev1.Code_CODE_UNSUPPORTED:
		return codes.Unimplemented
	case wirev1.Code_CODE_BAD_TOPIC, wirev1.Code_CODE_INVALID_ARGUMENT, wirev1.Code_CODE_PAYLOAD_TOO_LARGE,
		wirev1.Code_CODE_BAD_FRAME, wirev1.Code_CODE_FRAME_TOO_LARGE, wirev1.Code_CODE_UNKNOWN_FRAME:
		return codes.InvalidArgument
	case wirev1.Code_CODE_NOT_FOUND:
		return codes.NotFound
	case wirev1.Code_CODE_ALREADY_EXISTS:
		return codes.AlreadyExists
	case wirev1.Code_CODE_CANCELLED:
		return codes.Canceled
	case wirev1.Code_CODE_EXPIRED, wirev1.Code_CODE_ACK_TIMEOUT, wirev1.Code_CODE_IDLE_TIMEOUT, wirev1.Code_CODE_HANDSHAKE_TIMEOUT:
		return codes.DeadlineExceeded
	}
	return codes.FailedPrecondition
}

func fromGRPC(c codes.Code) wirev1.Code {
	switch c {
	case codes.OK:
		return wirev1.Code_CODE_OK
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted:
		return wirev1.Code_CODE_UNAVAILABLE
	case codes.ResourceExhausted:
		return wirev1.Code_CODE_OVERLOADED
	case codes.Unauthenticated:
		return wirev1.Code_CODE_UNAUTHENTICATED
	case codes.PermissionDenied:
		return wirev1.Code_CODE_FORBIDDEN
	case codes.InvalidArgument, codes.OutOfRange:
		return wirev1.Code_CODE_INVALID_ARGUMENT
	case codes.NotFound:
		return wirev1.Code_CODE_NOT_FOUND
	case codes.AlreadyExists:
		return wirev1.Code_CODE_ALREADY_EXISTS
	case codes.FailedPrecondition:
		return wirev1.Code_CODE_CONFLICT
	case codes.Unimplemented:
		return wirev1.Code_CODE_UNSUPPORTED
	case codes.Canceled:
		return wirev1.Code_CODE_CANCELLED
	}
	return wirev1.Code_CODE_INTERNAL
}
