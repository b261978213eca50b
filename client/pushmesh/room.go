package pushmesh

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/caller"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// room is what a feature of another package has of a Subscriber.
type room struct {
	ext.Room
	name string
}

func init() {
	ext.Fault = func(ctx context.Context, err error) error {
		fault := fromStatus(err)
		if ctx.Err() == nil {
			return fault
		}
		return waited(ctx, "no answer from a router", fault)
	}
	ext.Attach = func(subscriber any, name string, build func(ext.Host) ext.Room) ext.Room {
		s, ok := subscriber.(*Subscriber)
		if !ok {
			panic(fmt.Sprintf("pushmesh: %T is no Subscriber", subscriber))
		}
		s.mu.Lock()
		defer s.unlock()
		return roomFor(s, name, build)
	}
}

// roomFor finds the room of a name, or has it made. Called with s.mu held.
func roomFor[R ext.Room](s *Subscriber, name string, build func(ext.Host) R) R {
	for _, r := range s.rooms {
		if had, ok := r.Room.(R); ok && r.name == name {
			return had
		}
	}
	r := build(host{s})
	s.rooms = append(s.rooms, room{r, name})
	return r
}

// host is a Subscriber as its rooms see it.
type host struct{ s *Subscriber }

func (h host) Lock()            { h.s.mu.Lock() }
func (h host) Unlock()          { h.s.unlock() }
func (h host) Later(f func())   { h.s.calls = append(h.s.calls, f) }
func (h host) Link() *link.Conn { return h.s.link }
func (h host) NextID() uint32   { return h.s.nextID() }
func (h host) Wake()            { h.s.changed.Broadcast() }

func (h host) Waits(ctx context.Context) (done func(), err error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	switch at, _ := h.s.calledAt(ctx); at {
	case caller.OnReader:
		return nil, errWaitByHandler
	case caller.InQueue, caller.InCrew:
		return h.s.awaiting(), nil
	}
	return func() {}, nil
}

func (h host) Over() error {
	if h.s.closing || h.s.err != nil {
		return h.s.endError()
	}
	return nil
}

func (h host) Waited(ctx context.Context, what string) error {
	return waited(ctx, what, h.s.faultOf())
}

func (h host) Backoff() (low, high time.Duration) { return h.s.cfg.MinBackoff, h.s.cfg.MaxBackoff }

// roomsFrame has the room that knows a frame take it; unknown ones are skipped.
func (s *Subscriber) roomsFrame(t wirev1.FrameType, body []byte) error {
	s.mu.Lock()
	defer s.unlock()
	for _, r := range s.rooms {
		if taken, err := r.Frame(t, body); taken {
			return err
		}
	}
	return nil
}

// roomsRefused has the room that has asked what is refused take that. Called with s.mu held.
func (s *Subscriber) roomsRefused(id uint32, err *Error) {
	for _, r := range s.rooms {
		if r.Refused(id, err) {
			return
		}
	}
}
