// Package ext is how features that are packages of their own share a Subscriber's connection: with
// frames beside those of subscriptions, and with its lock.
package ext

import (
	"context"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ErrBadFrame ends the connection that it came over.
var ErrBadFrame = errors.New("pushmesh: the edge sent a frame that can't be decoded")

// Host is the Subscriber, for its rooms. What is not said otherwise is called under its lock.
type Host interface {
	// Lock and Unlock are its lock. Unlock then calls what Later was given.
	Lock()
	Unlock()
	Later(f func())
	// Link is its connection; nil: it has none.
	Link() *link.Conn
	// NextID is an id that no request of the connection has.
	NextID() uint32
	// Wake has the reader look whether somebody owes an answer.
	Wake()
	// Over is why it has ended, or ends; nil: it works.
	Over() error
	// Waits is for a call with ctx that is to wait for something that comes over the connection. An
	// error says that it would wait for itself. Otherwise the connection is read on for it,
	// whatever waits for handlers, until done is called. It takes the lock.
	Waits(ctx context.Context) (done func(), err error)
	// Waited is the error of a context that ended, with what stood in the way. It takes the lock.
	Waited(ctx context.Context, what string) error
	// Backoff bounds the waits for what is refused for now. It needs no lock.
	Backoff() (low, high time.Duration)
}

// Room is a feature's part of one Subscriber. It is called under the lock.
type Room interface {
	// Uses reports whether a request has the id.
	Uses(id uint32) bool
	// Owes reports whether somebody waits for an answer.
	Owes() bool
	// Connected says and asks everything on a new connection, which the caller flushes.
	Connected(l *link.Conn)
	// Broken answers what the connection took with it.
	Broken()
	// End ends everything: no answer comes any more.
	End(err error)
	// Refused takes the refusal of a request; false: it has none of the id.
	Refused(id uint32, err error) bool
	// Frame takes a frame; false: it is none of its.
	Frame(t wirev1.FrameType, body []byte) (bool, error)
}

// Attach finds the room of a name of a *pushmesh.Subscriber, or has it made. Package pushmesh sets
// it: so nobody outside can.
var Attach func(subscriber any, name string, build func(Host) Room) Room

// Fault is the *pushmesh.Error of a call to a router that failed, or the end of its context with
// what stood in the way. Package pushmesh sets it.
var Fault func(ctx context.Context, err error) error

// Milliseconds are rounded up: what is asked for is never taken for 0, which is the mesh's default.
func Milliseconds(d time.Duration) uint32 {
	return uint32(min((max(d, 0)+time.Millisecond-1)/time.Millisecond, 1<<32-1))
}
