package presence

import (
	"math"
	"strings"

	members "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// walkSlice is how many connections, or subscriptions of them, a walk looks at in one go.
const walkSlice = 64

// memberWalk tells of everybody who is a member of a filter's topics. It goes over the loop's
// slots, which nobody leaves for another; what comes meanwhile behind it was noted.
type memberWalk struct {
	w     *Watch
	f     *filter
	walk  uint64
	slots walk.Slots
	// With wildcards, the connection in hand, and how many of its subscriptions and groups are
	// left. From the last to the first: what takes the place of one that goes was told of, or will
	// be.
	in            exchange.Conn
	begun         bool
	alone, shared int
	changes       []members.Change
}

// Step implements walk.Job.
func (j *memberWalk) Step() bool {
	if j.f.walk != j.walk {
		return true // another has begun, or nobody wants to know
	}
	cfg := &j.w.cfg
	done := j.slots.Step(cfg.Cost, walkSlice, cfg.Delivery.Slots(), func(slot uint32) bool {
		if c, open := cfg.Delivery.OpenConn(slot); open && !j.look(c) {
			return false
		}
		j.begun = false
		return true
	})
	if done {
		j.changes = append(j.changes, members.Change{Kind: members.Walked, Filter: j.f.name, Walk: j.walk})
	}
	if len(j.changes) > 0 {
		cfg.Mesh.TellMembers(cfg.Loop, j.changes)
		j.changes = nil
	}
	return done
}

// look tells of a connection, or of one of its subscriptions, and reports whether that was all.
func (j *memberWalk) look(c exchange.Conn) bool {
	if !j.f.wild {
		if since, is := j.w.isMember(c, j.f, ""); is {
			j.tell(c, "", since)
		}
		return true
	}
	if !j.begun {
		j.in, j.begun, j.alone, j.shared = c, true, math.MaxInt, math.MaxInt
	}
	if j.in != c {
		return true // of a new connection everything is noted
	}
	alone, shared := j.w.cfg.Delivery.Subscriptions(c)
	if j.alone = min(j.alone, alone); j.alone > 0 {
		j.alone--
		j.named(c, j.w.cfg.Delivery.Subscription(c, false, j.alone))
		return false
	}
	if j.shared = min(j.shared, shared); j.shared > 0 {
		j.shared--
		j.named(c, j.w.cfg.Delivery.Subscription(c, true, j.shared))
		return false
	}
	return true
}

// named tells of a subscription that names a topic, where that is of the filter's.
func (j *memberWalk) named(c exchange.Conn, s Subscription) {
	if s.Counts && !s.Wildcard && topic.Match(j.f.name, s.Filter) && j.w.cfg.Watched(s.Filter) {
		j.tell(c, strings.Clone(s.Filter), s.Since)
	}
}

// namedWalk tells of everybody who is a member of a topic by name. It goes over the topic's places
// from the last to the first: what takes the place of one that goes was looked at, and what comes
// was noted.
type namedWalk struct {
	w       *Watch
	f       *filter
	walk    uint64
	begun   bool
	left    int             // places
	groups  []exchange.Conn // members of groups
	changes []members.Change
}

// Step implements walk.Job.
func (j *namedWalk) Step() bool {
	if j.f.walk != j.walk {
		return true // another has begun, or nobody wants to know
	}
	cfg := &j.w.cfg
	if !j.begun {
		j.begun, j.left, j.groups = true, cfg.Delivery.Tracks(j.f.name), cfg.Delivery.InGroups(nil, j.f.name)
		cfg.Cost.Add(len(j.groups))
	}
	done := false
	for range cfg.Cost.Slice(walkSlice) {
		if j.left = min(j.left, cfg.Delivery.Tracks(j.f.name)); j.left > 0 {
			j.left--
			j.look(cfg.Delivery.TrackAt(j.f.name, j.left))
		} else if n := len(j.groups); n > 0 {
			j.look(j.groups[n-1])
			j.groups = j.groups[:n-1]
		} else {
			done = true
			j.changes = append(j.changes, members.Change{Kind: members.Walked, Filter: j.f.name, Named: true, Walk: j.walk})
			break
		}
	}
	if len(j.changes) > 0 {
		cfg.Mesh.TellMembers(cfg.Loop, j.changes)
		j.changes = nil
	}
	return done
}

// look tells of a connection, which may have ended. One with several places is told of again.
func (j *namedWalk) look(c exchange.Conn) {
	if now, open := j.w.cfg.Delivery.OpenConn(c.Slot); !open || now != c {
		return
	}
	if since, is := j.w.isMember(c, j.f, ""); is {
		j.changes = append(j.changes, members.Change{
			Kind: members.Joined, Filter: j.f.name, Named: true, Walk: j.walk, Member: j.w.memberOf(j.f, c, "", since),
		})
	}
}

func (j *memberWalk) tell(c exchange.Conn, name string, since uint32) {
	j.changes = append(j.changes, members.Change{Kind: members.Joined, Filter: j.f.name, Walk: j.walk, Member: j.w.member(c, name, since)})
}
