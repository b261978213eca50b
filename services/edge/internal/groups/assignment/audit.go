package assignment

import "time"

// A member's messages come back by its edge's word: that it ACKed, refused or left, or let
// ack_timeout go by. Should an edge not know of a message, or of the member, that word never comes,
// so who has had a message for long is asked what it has.

const (
	// AskAfter is how long a message is with a member before that is asked, longer than the
	// default ack_timeout. What the answer names is asked for again when that time has doubled.
	AskAfter = int64(5 * time.Second)
	// askAnyway is when one is asked again whatever it has: none need be kept that is no member.
	askAnyway  = int64(time.Minute)
	auditEvery = int64(time.Second)
)

// Ask is a question to a member: Join with what it has, and with this turn as asked, is the answer.
type Ask struct {
	Member MemberID
	Turn   uint64
}

// Asks are the questions to members that have had a message for long, or were not asked for long,
// at a time as of Advance, and when they are to be looked for again; 0: once there are members.
// What is assigned meanwhile is looked at no earlier than AskAfter from then.
func (c *Core) Asks(now int64) (all []Ask, again int64) {
	for id, m := range c.members {
		at := m.askAt()
		if at <= now {
			m.asked = now
			all = append(all, Ask{id, c.turns})
			at = m.askAt()
		}
		if again == 0 || at < again {
			again = at
		}
	}
	if again != 0 {
		again = max(again, now+auditEvery)
	}
	return all, again
}

// askAt is when the member is to be asked what it has.
func (m *member) askAt() int64 {
	at := m.asked + askAnyway
	if first := m.tasks.first; first != nil {
		at = min(at, max(first.given+AskAfter, 2*m.asked-first.given))
	}
	return at
}

// Holder is a member and what it has, as far as is known.
type Holder struct {
	Member MemberID
	// Has is how many messages it was assigned that are not settled, Window the most of them.
	Has, Window int
	// Oldest is how long it has had one of them.
	Oldest time.Duration
}

// Holders are so many of the members, in no order, at a time as of Advance.
func (c *Core) Holders(now int64, most int) (all []Holder) {
	for id, m := range c.members {
		if len(all) == most {
			break
		}
		h := Holder{Member: id, Has: m.load(), Window: m.window}
		if first := m.tasks.first; first != nil {
			h.Oldest = time.Duration(now - first.given)
		}
		all = append(all, h)
	}
	return all
}
