package departure

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const stopping = "the edge is stopping"

// stop is the planned stop of the loop: GOAWAY for everyone, over a time; ACKs are waited for a
// while, sessions are saved, connections closed.
type stop struct {
	exchange.Drain
	asked    bool // everyone was
	saving   int  // last saves that are not answered
	deadline int64
	ended    bool
}

// going is what those are told that the stop sends away.
func (s *stop) going() *goAway {
	return &goAway{reason: stopping, jitterMS: s.JitterMS, addresses: s.Addresses}
}

// Drain begins the planned stop. A second one is done at once.
func (d *Departures) Drain(e exchange.Drain) {
	if d.stop != nil {
		if e.Done != nil {
			e.Done()
		}
		return
	}
	s := &stop{Drain: e, deadline: d.delivery.Now() + int64(e.DeadlineMS)*int64(time.Millisecond)}
	d.stop = s
	d.begin(leaving{
		going: *s.going(), takes: int64(e.SpreadMS) * int64(time.Millisecond),
		wanted: d.delivery.Connections(), all: true, onAsked: func() { s.asked = true },
	})
}

// Stopping reports whether no connection is accepted any more.
func (d *Departures) Stopping() bool { return d.stop != nil }

// TurnAway is for newcomers while the loop stops.
func (d *Departures) TurnAway(slot uint32) {
	d.delivery.TurnAway(slot, d.stop.going().frame())
}

// Welcomed asks a connection to go that came before the stop and was welcomed now.
func (d *Departures) Welcomed(slot uint32) {
	if d.stop != nil {
		d.ask(slot, d.delivery.State(slot), d.stop.going())
	}
}

// Reason is why connections that were asked to go are closed.
func (d *Departures) Reason() string {
	if d.stop != nil {
		return stopping
	}
	return "the client was asked to connect elsewhere"
}

// Saving notes that the last save of a connection was begun; Saved, that one was answered. The stop
// waits for them.
func (d *Departures) Saving() {
	if d.stop != nil {
		d.stop.saving++
	}
}

// Saved notes the answer to a last save.
func (d *Departures) Saved() {
	if s := d.stop; s != nil && s.saving > 0 {
		s.saving--
	}
}

// Ended reports whether the planned stop has come to its end, once; the loop asks every turn.
func (d *Departures) Ended() bool {
	s := d.stop
	if s == nil || s.ended {
		return false
	}
	if d.delivery.Now() < s.deadline && (!s.asked || s.saving > 0 || d.delivery.Connections() > 0) {
		return false
	}
	s.ended = true
	if s.Done != nil {
		s.Done()
	}
	return true
}
