package promise

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// sight is what a diary has told of one message so far.
type sight struct {
	conn    uint32 // of the last delivery
	attempt uint32 // of the last delivery
	waits   bool   // counts in the window of conn
	acked   bool
	ackedAt time.Time
	ackConn uint32
	ackedBy *Diary // of a group: the member
}

// reader goes through one diary.
type reader struct {
	v       *Verdict
	h       *History
	d       *Diary
	log     map[place]uint64
	letters map[place]bool

	seen    map[place]sight
	high    map[string]place // highest first delivery of each topic
	ends    []time.Time      // of connections 1, 2, …
	waiting int              // un-ACKed on this connection
}

func (r *reader) read() {
	for i := range r.d.Events {
		e := &r.d.Events[i]
		if e.Kind == Ended {
			for uint32(len(r.ends)) < e.Conn {
				r.ends = append(r.ends, e.At)
			}
		}
	}
	for i := range r.d.Events {
		e := &r.d.Events[i]
		switch e.Kind {
		case Connected:
			r.v.Connections++
			r.waiting = 0
		case Delivered:
			r.delivered(e)
		case Acked, Nacked:
			r.answered(e)
		case Skipped:
			r.skipped(e)
		case Missed:
			r.v.breach(Complete, "%s: %s: %d messages were not recovered", r.d.Name, e.Topic, e.Seq)
		}
	}
}

// skipped is right for what the subscriber refused to the end, and for nothing else: nothing
// expires here.
func (r *reader) skipped(e *Event) {
	p := placed(r.h, e)
	for p.seq = e.From; p.seq <= e.Seq; p.seq++ {
		if e.Code != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED || !r.poison(r.log[p]) {
			r.v.breach(Complete, "%s: %v won't come, said the edge: %v", r.d.Name, p, e.Code)
		}
	}
}

func (r *reader) poison(id uint64) bool { return r.d.Acks && r.h.Poison != nil && r.h.Poison(id) }

func (r *reader) delivered(e *Event) {
	r.v.Deliveries++
	p := placed(r.h, e)
	if id, stored := r.log[p]; !stored || id != e.ID || !e.Intact {
		r.v.breach(Authentic, "%s: %v came with id %d (intact: %v), the log has %d (there: %v)", r.d.Name, p, e.ID, e.Intact, id, stored)
		return
	}
	s, again := r.seen[p]
	if again {
		r.v.Redeliveries++
		r.again(e, p, s)
	} else {
		if high := r.high[e.Topic]; p.epoch < high.epoch || p.epoch == high.epoch && p.seq < high.seq {
			r.v.breach(FirstInOrder, "%s: %s seq %d came after %d", r.d.Name, e.Topic, p.seq, high.seq)
		}
		r.high[e.Topic] = p
	}
	if !s.waits || s.conn != e.Conn {
		r.waiting++
	}
	if r.d.Window > 0 && r.waiting > r.d.Window {
		r.v.breach(Windowed, "%s: %d un-ACKed, with %v", r.d.Name, r.waiting, p)
	}
	s.conn, s.attempt, s.waits = e.Conn, e.Attempt, true
	r.seen[p] = s
}

func (r *reader) again(e *Event, p place, s sight) {
	var age time.Duration // of its ACK when that should have been stored at the latest
	if s.acked {
		until := e.At
		if s.ackConn != e.Conn {
			until = r.ends[s.ackConn-1]
		}
		age = until.Sub(s.ackedAt)
		r.v.forgot(age)
	}
	switch {
	case !r.d.Acks:
		r.v.breach(Redelivery, "%s: %v came twice", r.d.Name, p)
	case s.conn == e.Conn && e.Attempt <= s.attempt:
		r.v.breach(Redelivery, "%s: %v came again on connection %d, as attempt %d after %d", r.d.Name, p, e.Conn, e.Attempt, s.attempt)
	case s.ackConn == e.Conn && age > r.h.grace(ackGrace):
		r.v.breach(Redelivery, "%s: %v came again on the connection that had ACKed it", r.d.Name, p)
	case age > r.h.grace(ackGrace):
		r.v.breach(Redelivery, "%s: %v came again though it was ACKed %s before its connection ended", r.d.Name, p, age)
	}
}

func (r *reader) answered(e *Event) {
	p := placed(r.h, e)
	s, came := r.seen[p]
	if !came {
		return
	}
	if s.waits && s.conn == e.Conn {
		r.waiting--
		s.waits = false
	}
	if e.Kind == Acked {
		s.acked, s.ackedAt, s.ackConn = true, e.At, e.Conn
	}
	r.seen[p] = s
}

// close checks what is owed at the end.
func (r *reader) close() {
	owed := map[string]bool{}
	for _, topic := range r.d.Topics {
		owed[topic] = true
		for _, m := range r.h.Log[topic] {
			p := place{topic, m.Epoch, m.Seq}
			s, came := r.seen[p]
			poison := r.poison(m.ID)
			switch {
			case !came:
				r.v.breach(Complete, "%s: %v (id %d) never came", r.d.Name, p, m.ID)
			case r.d.Acks && !poison && !s.acked:
				r.v.breach(Complete, "%s: %v came and could not be ACKed to the end", r.d.Name, p)
			case poison && !r.letters[p]:
				r.v.breach(DeadLetters, "%s has none for %v, which it always refused", r.d.Name, p)
			}
		}
	}
	for p := range r.seen {
		if !owed[p.topic] {
			r.v.breach(Authentic, "%s: %v came without being subscribed to", r.d.Name, p)
		}
	}
}
