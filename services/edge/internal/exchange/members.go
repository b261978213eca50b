package exchange

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Members is what a loop asks about who is in topics, for clients that watch. Its methods never
// block.
type Members interface {
	// Follow has the loop told of a topic from now on, until Unfollow, and the connection told all
	// that is known: MembersTold answers, once that is known, or MembersEnded. It may be called
	// again for a connection that has missed something.
	Follow(conn Conn, topic string)
	// Unfollow says that nobody on the loop watches the topic any more.
	Unfollow(loop uint16, topic string)
}

// MembersTold tells of who is in a topic: one connection, all that is known, or all that watch,
// what has changed. The frame is a whole Presence, shared by all who get it, and is not changed.
type MembersTold struct {
	// Conn with the generation 0: everybody who watches the topic.
	Conn  Conn
	Topic string
	Frame []byte
	// Serial grows by one with each that is for everybody; of one for a connection it is that of
	// the last of those before it.
	Serial uint64
	// Snapshot: it tells all that there is, and needs nothing before it.
	Snapshot bool
}

// MembersEnded says that nothing is told of a topic any more.
type MembersEnded struct {
	Topic  string
	Code   wirev1.Code
	Reason string
}

func (MembersTold) event()  {}
func (MembersEnded) event() {}
