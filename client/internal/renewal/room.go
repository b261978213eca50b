// Package renewal hands new tokens to the connection that there is.
package renewal

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ErrNoConnection refuses a token where there is no connection.
var ErrNoConnection = errors.New("there is no connection to take the token: the next one asks for its own")

// errBroken answers a token that was sent, whose connection ended before its answer came.
var errBroken = errors.New("the connection ended before the answer: the next one asks for a token of its own")

// Answer to a token. Open: the mesh may have taken it.
type Answer struct {
	Refreshed *wirev1.Refreshed
	Err       error
	Open      bool
}

// Room has the tokens of one Subscriber that are not answered, and is called under its lock.
type Room struct {
	ext.Host
	asks map[uint32]chan<- Answer
}

// New is the room of a host.
func New(h ext.Host) *Room { return &Room{Host: h, asks: map[uint32]chan<- Answer{}} }

// Ask writes a token to the connection's buffer, which the caller flushes without the lock. The
// channel has its answer, once.
func (r *Room) Ask(token string) <-chan Answer {
	done := make(chan Answer, 1)
	l := r.Link()
	if l == nil {
		done <- Answer{Err: ErrNoConnection}
		return done
	}
	id := r.NextID()
	if bad := l.Put(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: id, Token: token}); bad != nil {
		done <- Answer{Err: bad}
		return done
	}
	r.asks[id] = done
	r.Wake() // the reader reads on for the answer
	return done
}

func (r *Room) answered(id uint32, a Answer) bool {
	done := r.asks[id]
	if done == nil {
		return false
	}
	delete(r.asks, id)
	done <- a
	return true
}

// Uses reports whether a token has the id.
func (r *Room) Uses(id uint32) bool { return r.asks[id] != nil }

// Owes reports whether a token is unanswered.
func (r *Room) Owes() bool { return len(r.asks) > 0 }

// Connected does nothing: a connection begins with a token of its own.
func (r *Room) Connected(*link.Conn) {}

// Broken answers what the connection took with it.
func (r *Room) Broken() { r.End(errBroken) }

// End answers everything.
func (r *Room) End(err error) {
	for id := range r.asks {
		r.answered(id, Answer{Err: err, Open: true})
	}
}

// Refused takes the refusal of a token.
func (r *Room) Refused(id uint32, err error) bool { return r.answered(id, Answer{Err: err}) }

// Frame takes an answer.
func (r *Room) Frame(t wirev1.FrameType, body []byte) (bool, error) {
	if t != wirev1.FrameType_FRAME_TYPE_REFRESHED {
		return false, nil
	}
	m := &wirev1.Refreshed{}
	if proto.Unmarshal(body, m) != nil {
		return true, ext.ErrBadFrame
	}
	r.answered(m.GetId(), Answer{Refreshed: m})
	return true, nil
}
