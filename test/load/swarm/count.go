package swarm

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Restart begins to count deliveries anew.
func (s *Swarm) Restart() {
	for i := range s.conns {
		s.conns[i].got = 0
	}
	s.received = 0
}

// Received is how many deliveries all connections together got since Restart.
func (s *Swarm) Received() uint64 { return s.received }

// Pongs is how many pings were answered.
func (s *Swarm) Pongs() uint64 { return s.pongs }

// Await sets the deliveries that every connection is to have got since Restart.
func (s *Swarm) Await(each int) {
	s.goal, s.reached = uint32(each), 0
	for i := range s.conns {
		if s.conns[i].got >= s.goal {
			s.reached++
		}
	}
}

// Reached says that all have what Await named.
func (s *Swarm) Reached() bool { return s.reached == len(s.conns) }

// Missing is how many connections don't.
func (s *Swarm) Missing() int { return len(s.conns) - s.reached }

// Until turns until all have what Await named. Nothing arriving at all for patience is an error.
func (s *Swarm) Until(patience time.Duration) error {
	last, progress := s.received, time.Now()
	for !s.Reached() {
		if err := s.Turn(50 * time.Millisecond); err != nil {
			return err
		}
		if s.received > last {
			last, progress = s.received, time.Now()
		} else if time.Since(progress) > patience {
			return fmt.Errorf("INCOMPLETE: %d of %d connections lack some of %d messages", s.Missing(), len(s.conns), s.goal)
		}
	}
	return nil
}

// Beat sends the pings that are due: each connection has its own phase of the heartbeat.
func (s *Swarm) Beat(now time.Time) error {
	ping := s.cfg.Dialect.Ping()
	if s.cfg.Heartbeat == 0 || ping == nil || len(s.conns) == 0 {
		return nil
	}
	if s.beating.IsZero() {
		s.beating = now
	}
	due := int(float64(s.cfg.Conns) * now.Sub(s.beating).Seconds() / s.cfg.Heartbeat.Seconds())
	for ; s.beats < due; s.beats++ {
		at := s.beats % s.cfg.Conns
		if at >= len(s.conns) || s.conns[at].ready > 0 {
			continue // not up yet
		}
		if err := write(int(s.conns[at].fd), ping); err != nil && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("ping of connection %d: %w", at, err)
		}
	}
	return nil
}

// Hold keeps the connections up, pinging, until then.
func (s *Swarm) Hold(until time.Time) error {
	for now := time.Now(); now.Before(until); now = time.Now() {
		if err := errors.Join(s.Beat(now), s.Turn(10*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}
