// Package promise checks the mesh's promises from outside: publishers write down every answer,
// subscribers every frame that matters, and a judge that knows nothing of the inside compares the
// two with the log as it can be read afterwards, while processes are killed at random.
package promise

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Published is one message that a publisher offered. A topic has one publisher, and an id is
// offered with one payload.
type Published struct {
	ID       uint64
	Topic    string
	Answered bool // OK
	Epoch    uint64
	Seq      uint64
}

// Stored is one message of a topic's log as HistoryService tells it.
type Stored struct {
	Epoch, Seq uint64
	ID         uint64
	Intact     bool // the payload is the one that belongs to the id
}

// Kind of an event in a subscriber's life.
type Kind uint8

// Kinds of events.
const (
	Connected Kind = iota
	Delivered
	Acked
	Nacked
	// Skipped are seqs From to Seq of which the edge said that they won't come, and why.
	Skipped
	// Missed is a resume that did not recover everything.
	Missed
	Ended
)

// Event is one line of a subscriber's diary. Which fields count depends on the kind.
type Event struct {
	Kind    Kind
	Intact  bool
	Attempt uint32
	Conn    uint32 // 1, 2, …
	Topic   string
	Code    wirev1.Code
	From    uint64
	Epoch   uint64 // 0: the subscriber was not told; it is the log's
	Seq     uint64
	ID      uint64
	At      time.Time
}

// Diary is what one subscriber saw, in order.
type Diary struct {
	Name string
	// Topics it was subscribed to before anything was published: all of them are owed to it.
	Topics []string
	// Acks is true for durable sessions: at least once, redelivered until ACKed. Without it the
	// subscriber resumes after the highest seq it saw, and nothing may come twice.
	Acks bool
	// Group it was a member of; "": none. What is owed is owed to the group then: each message to
	// one member, until it is ACKed.
	Group string
	// Sticky groups have a topic's messages in order, whoever gets them.
	Sticky bool
	// Window is the most un-ACKed messages that may be with it; 0: no bound.
	Window int
	// Edges of connections 1, 2, …; "": it ended before its edge said who it is.
	Edges  []string
	Events []Event
}

// Letter is a dead letter of a diary, or of a group, of this name.
type Letter struct {
	Session  string
	Topic    string
	Epoch    uint64
	Seq      uint64
	Attempts uint32
}

// History is everything the judge is shown.
type History struct {
	// Published in the order each topic's publisher offered them.
	Published []Published
	// Log of each topic, in the order it was read.
	Log     map[string][]Stored
	Diaries []*Diary
	Letters []Letter
	// Killed is when each edge was killed, in that order.
	Killed map[string][]time.Time
	// Poison says which ids a session's subscribers always refuse: these must end as dead letters.
	Poison func(id uint64) bool
	// Slowness is how many times slower the machine was than one for which the judge's times are
	// long enough; 0: not at all.
	Slowness float64
	// MaxAttempts of the namespace: deliveries before a message is a dead letter.
	MaxAttempts uint32
}
