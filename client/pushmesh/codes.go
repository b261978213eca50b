package pushmesh

import (
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Code is the one closed list of reasons, the same on the wire, in gRPC, logs and metrics. What
// each means, and what to do, is in docs/protocol.md. A mesh of a later edition may have others.
type Code int32

// The codes.
const (
	CodeOK                   Code = 0
	CodeBadFrame             Code = 1
	CodeFrameTooLarge        Code = 2
	CodeUnknownFrame         Code = 3
	CodeHandshakeTimeout     Code = 4
	CodeUnauthenticated      Code = 5
	CodeForbidden            Code = 6
	CodeBadTopic             Code = 7
	CodeTooManySubscriptions Code = 8
	CodeRateLimited          Code = 9
	CodeOverloaded           Code = 10
	CodeSlowConsumer         Code = 11
	CodeIdleTimeout          Code = 12
	CodeUnhealthy            Code = 13
	CodeSessionTakenOver     Code = 14
	CodeDraining             Code = 15
	CodeUnavailable          Code = 16
	CodeInternal             Code = 17
	CodeUnsupported          Code = 18
	CodeTokenExpired         Code = 19
	CodeNotHeld              Code = 20
	CodeTooManyConnections   Code = 21
	CodeInvalidArgument      Code = 22
	CodeNotFound             Code = 23
	CodeAlreadyExists        Code = 24
	CodeConflict             Code = 25
	CodeOutOfOrder           Code = 26
	CodeAckTimeout           Code = 27
	CodeEpochChanged         Code = 28
	CodePayloadTooLarge      Code = 29
	CodeTooManyTopics        Code = 30
	CodeExpired              Code = 31
	CodeRetention            Code = 32
	CodeQueueFull            Code = 33
	CodeConflated            Code = 34
	CodeFiltered             Code = 35
	CodeRankedOut            Code = 36
	CodeNotYours             Code = 37
	CodeMemoryBudget         Code = 38
	CodeAttemptsExhausted    Code = 39
	CodeNoSubscriber         Code = 40
	CodeCancelled            Code = 41

	// CodeNone is that of an error without one: not the mesh made it, but this process, as the end
	// of a context, or ErrClosed.
	CodeNone Code = -1
)

// onWire begins the names of codes in the schema.
const onWire = "CODE_"

// String is the name of the code, as the mesh writes it: "FORBIDDEN".
func (c Code) String() string {
	if c == CodeNone {
		return "NONE"
	}
	if name, known := wirev1.Code_name[int32(c)]; known {
		return strings.TrimPrefix(name, onWire)
	}
	return onWire + strconv.Itoa(int(c))
}

// Retryable reports whether what was refused with the code can succeed, tried again as it is. A
// code that is not known here is of a later edition, and counts as CodeInternal.
func (c Code) Retryable() bool {
	switch c {
	case CodeHandshakeTimeout, CodeRateLimited, CodeOverloaded, CodeSlowConsumer, CodeIdleTimeout, CodeUnhealthy,
		CodeDraining, CodeUnavailable, CodeInternal, CodeTooManyConnections, CodeAckTimeout:
		return true
	}
	_, known := wirev1.Code_name[int32(c)]
	return !known && c >= 0
}

// Targets for errors.Is: errors.Is(err, ErrForbidden) reports whether the mesh, or this package for
// it, refused with FORBIDDEN.
var (
	ErrUnauthenticated      error = reason(CodeUnauthenticated)
	ErrForbidden            error = reason(CodeForbidden)
	ErrBadTopic             error = reason(CodeBadTopic)
	ErrTooManySubscriptions error = reason(CodeTooManySubscriptions)
	ErrRateLimited          error = reason(CodeRateLimited)
	ErrOverloaded           error = reason(CodeOverloaded)
	ErrSlowConsumer         error = reason(CodeSlowConsumer)
	ErrSessionTakenOver     error = reason(CodeSessionTakenOver)
	ErrDraining             error = reason(CodeDraining)
	ErrUnavailable          error = reason(CodeUnavailable)
	ErrInternal             error = reason(CodeInternal)
	ErrUnsupported          error = reason(CodeUnsupported)
	ErrTokenExpired         error = reason(CodeTokenExpired)
	ErrNotHeld              error = reason(CodeNotHeld)
	ErrTooManyConnections   error = reason(CodeTooManyConnections)
	ErrInvalidArgument      error = reason(CodeInvalidArgument)
	ErrNotFound             error = reason(CodeNotFound)
	ErrAlreadyExists        error = reason(CodeAlreadyExists)
	ErrConflict             error = reason(CodeConflict)
	ErrOutOfOrder           error = reason(CodeOutOfOrder)
	ErrEpochChanged         error = reason(CodeEpochChanged)
	ErrPayloadTooLarge      error = reason(CodePayloadTooLarge)
	ErrFrameTooLarge        error = reason(CodeFrameTooLarge)
	ErrTooManyTopics        error = reason(CodeTooManyTopics)
	ErrExpired              error = reason(CodeExpired)
)

// reason is the code of an Error alone.
type reason Code

func (r reason) Error() string { return "pushmesh: " + Code(r).String() }
