// Package exchange is the seam of an edge: what an event loop asks of the mesh, and what it is
// told.
//
// A loop never waits. Every method of Mesh returns at once; answers come back as an Event through
// the mailbox of the loop that owns the connection. Everything that talks to NATS, the store or a
// router lives behind Mesh, in goroutines; everything that touches a connection lives on its loop.
package exchange

import (
	"sync/atomic"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Conn names a connection: its loop, its slot in the loop's slab, and the slot's generation. An
// event for a connection that is gone (another generation) is a counted no-op.
type Conn struct {
	Loop uint16
	Slot uint32
	Gen  uint32
}

// Message is one message, encoded once for all subscribers of the edge. It is immutable but for
// Verdicts, and shared by reference.
type Message struct {
	Topic string
	// Epoch and Seq are 0 for ephemeral messages.
	Epoch uint64
	Seq   uint64
	// ExpiresAt is a Unix time in microseconds; 0: never.
	ExpiresAt uint64
	// Frame is the whole frame (header, topic, seq, body) without a tail; see proto/wire. Its
	// capacity reaches over the frames of the messages that follow by Next, and no further; nothing
	// is ever appended to it.
	Frame []byte
	// Next is the message of the same topic whose frame lies right behind this one's; nil: none
	// does.
	Next *Message
	// Mesh is an encoded meshv1.MessageFeatures, nil where it has none. It is in no frame.
	Mesh []byte
	// Origin is the client that has published it (identity.Origin); 0: it was no client.
	Origin uint64
	// Verdicts of content filters; nil: none was in use. They are replaced, off the loops, where
	// others have come into use since.
	Verdicts atomic.Pointer[Verdicts]
	// Traceparent of the message where it is sampled; "" otherwise.
	Traceparent string
	// Block is its part, in bytes, of the memory that it shares with messages that came with it.
	// All of that is kept while any of them is. 0: it lies alone.
	Block uint32
	// Priority is 0 to 9.
	Priority uint8
}

// Body is the message without the frame's header, topic and seq: what routers and the store have.
// It is a part of Frame.
func (m *Message) Body() []byte {
	var head [wire.HeaderSize + 300]byte
	n := wire.HeaderSize + len(wire.AppendHead(head[:0], m.Topic, m.Seq))
	return m.Frame[min(n, len(m.Frame)):]
}

// Kept is how much memory it keeps, in bytes, with its part of what it shares with those that came
// with it. Who keeps one of these alone has as much as all of them need.
func (m *Message) Kept() int { return max(len(m.Frame), int(m.Block)) + len(m.Mesh) }

// Size is about what it holds of memory, in bytes.
func (m *Message) Size() int { return len(m.Frame) + len(m.Mesh) }

// Head of a durable topic. Head 0 says that nothing was ever published; Oldest is the lowest seq
// retained, Head+1 where none is. Behind is the seq behind which a subscription begins that is to
// have the topic's last message first: below Head, or Head where the store keeps none.
type Head struct {
	Topic  string
	Epoch  uint64
	Head   uint64
	Oldest uint64
	Behind uint64
}

// Mesh is what a loop asks for. Methods never block and may be called on a loop; each may fail at
// once (the mesh's own queue is full) only by posting the answer with an error. A loop index names
// who asks.
type Mesh interface {
	Groups
	Ranks
	Claims
	Members
	// Join says that a subscription of this loop wants filter (a topic or a filter with wildcards),
	// and counts it. It is answered by Joined once every live router has the interest (500 ms at
	// most). heads asks for the heads of the durable topics that match, read after that; more than
	// limit topics (0: no limit) is TOO_MANY_TOPICS. Every Join is paired with one Leave, also when
	// it fails.
	Join(conn Conn, sub uint32, filter string, heads bool, limit int)
	// Filter has a content filter compiled, and every message of filter's topics judged by it from
	// then on. It is answered by Filtered. The subscription joins after that, and Unfilter comes
	// whatever the answer was.
	Filter(conn Conn, sub uint32, filter, where string)
	// Unfilter ends the Filter of a subscription.
	Unfilter(conn Conn, sub uint32)
	// Leave ends one Join of filter by this loop.
	Leave(loop uint16, filter string)
	// Read asks for messages of a durable topic from seq from on (inclusive), to seq to (0: the
	// head), at most about maxBytes; answered by Range to this loop, once per call. Equal reads of
	// the edge are shared, and served from recent messages where possible. epoch 0: whichever there
	// is.
	Read(loop uint16, topic string, epoch, from, to uint64, maxBytes int)
	// Publish hands a client's message to a router; answered by Published. origin is the client's
	// address, for which what waits counts; "": it counts for none.
	Publish(conn Conn, origin string, id uint32, item *meshv1.ClientPublish_Item)
	// Attach makes the connection the holder of session (user, name): an older holder yields first
	// (500 ms). Answered by Attached. A session that has to be created counts for origin, the
	// client's address; "": for none.
	Attach(conn Conn, user, name string, ttlSeconds uint32, connectionID uint64, origin string)
	// Save merges w into what waits to be written for the session (at most a second; at once when
	// now). With ref above 0 it is answered by Saved once it is stored. A stale generation is
	// answered by Detached whatever ref is. w.Detach ends the hold; generation 0 with Detach gives
	// up an Attach of this connection that is not answered yet.
	Save(conn Conn, ref uint32, w *meshv1.SessionWrite, now bool)
	// TellMembers tells of members of filters that are watched (WatchMembers). The slice is the
	// mesh's to keep.
	TellMembers(loop uint16, changes []presence.Change)
}

// Event is something a loop is told.
type Event interface{ event() }

// Joined answers Join.
type Joined struct {
	Conn Conn
	Sub  uint32
	// Heads are never behind the Live events posted to the loop before: a message above Head comes
	// (or came late and is repaired) as a Live posted after this event.
	Heads []Head
	// Exact says that the filter is a topic: then the event may be taken up after what was posted
	// after it. The loop has known the topic since Subscribe, and notes what comes of it.
	Exact bool
	// Err is nil or says why the subscription fails (UNAVAILABLE: no store; TOO_MANY_TOPICS).
	Err error
}

// Filtered answers Filter.
type Filtered struct {
	Conn Conn
	Sub  uint32
	// Program names the filter in Verdicts; never 0 without Err. Equal filters have the same.
	Program uint32
	// Err: INVALID_ARGUMENT is about the expression; OVERLOADED, too much is evaluated for messages
	// of these topics, or on this edge.
	Err error
}

// Live is a run of messages that just came, for every subscription of the loop that matches.
// Durable messages of a topic come in seq order and without holes as long as the loop has a Join
// for them, retention took none and no Post was refused; a new epoch may begin at any time. After a
// refused Post nothing of that topic is posted until the loop has room; what it missed is then sent
// again, or the last message alone, which shows the hole. Ephemeral ones come in the order
// received.
type Live struct {
	Messages []*Message
}

// Range answers Read. Messages are in seq order and begin at the first seq at or after from that is
// retained. Fewer than asked for says that maxBytes ended it, or that the head was reached (the
// last one's seq is Head). Head is never behind the Live events posted to the loop before this one:
// a subscription that reads on until its position is Head has missed nothing, and the next Live
// continues it.
type Range struct {
	Topic    string
	From     uint64
	Epoch    uint64
	Head     uint64
	Oldest   uint64
	Messages []*Message
	// Err: EPOCH_CHANGED (the epoch asked for is gone: Epoch, Head and Oldest tell of the present
	// one); retryable ones otherwise.
	Err error
}

// Published answers Publish.
type Published struct {
	Conn   Conn
	ID     uint32
	Result *meshv1.ClientPublishReply_Result
}

// Attached answers Attach.
type Attached struct {
	Conn       Conn
	Generation uint64
	Resumed    bool
	// Cursors by topic; they are the loop's to keep.
	Cursors map[string]*meshv1.SessionCursor
	Filters []string
	Err     error
}

// Saved answers Save with a ref.
type Saved struct {
	Conn Conn
	Ref  uint32
	Err  error
}

// Detached says that the connection no longer holds its session: it flushes nothing more and closes
// with SESSION_TAKEN_OVER, or with Err where another has not taken the session.
type Detached struct {
	Conn Conn
	Err  error
}

// Yield asks the connection that holds a session to hand in its last cursors with Save (w.Detach,
// now) and close with SESSION_TAKEN_OVER, because another connection wants the session.
type Yield struct {
	Conn Conn
}

// Disconnect closes connections of a client id and those of a user (empty ones match nothing);
// Reply gets how many.
type Disconnect struct {
	ClientID string
	User     string
	Code     wirev1.Code
	Reason   string
	Reply    func(n int)
}

// SetProfile replaces the profile of connections of a client id and of those of a user (empty ones
// match nothing); nil is an empty one. Reply gets how many.
type SetProfile struct {
	ClientID string
	User     string
	Profile  *Profile
	Reply    func(n int)
}

// Count asks how many of the loop's connections have a subscription that matches each topic.
type Count struct {
	Topics []string
	Reply  func(counts []uint64)
}

// Depth asks how much waits for a connection that its socket has not taken. Without such a
// connection there is no reply.
type Depth struct {
	Conn  Conn
	Reply func(messages, bytes int)
}

// WatchMembers has the loop tell (TellMembers) of everybody who is a member of filter's topics, and
// of every change from now on, with this walk. A later one for the filter begins anew; walk 0 ends
// it. The member of a filter with wildcards is a connection with a subscription that names a topic
// of a namespace with presence; of a filter that is a topic, one with any subscription that
// matches, or, of a Named one, a client with one that names it.
type WatchMembers struct {
	Filter string
	Named  bool
	Walk   uint64
}

// ListMembers asks for the members of a topic with the Limit lowest connection ids above After, in
// any order, without their topic; more says that there are others above.
type ListMembers struct {
	Topic string
	After uint64
	Limit int
	Reply func(members []*presence.Member, more bool)
}

// Drain makes the loop stop accepting, send GOAWAY to one connection after the other over SpreadMS,
// with jitter up to JitterMS, save what its sessions hold, close its connections and call Done. It
// ends by DeadlineMS (from now) whatever happens. Addresses, which may be nil, is where clients may
// go; it is called on the loop.
type Drain struct {
	SpreadMS   uint32
	JitterMS   uint32
	DeadlineMS uint32
	Addresses  func() []string
	Done       func()
}

// Rebalance has a random Share (0 to 1) of the loop's connections told to go, as by Drain and over
// OverMS; it goes on accepting. A later one takes the place of what is left of one before; a loop
// that drains does nothing. Reply gets how many will be told, fewer by those that end meanwhile.
type Rebalance struct {
	Share     float64
	OverMS    uint32
	JitterMS  uint32
	Addresses func() []string
	Reply     func(n int)
}

// EventKinds says which kinds of events somebody wants from now on.
type EventKinds struct {
	Kinds events.Mask
}

// HandshakeMoved says that the TLS handshake of a connection has something to be sent, or is over.
// The loop asks the handshake itself.
type HandshakeMoved struct{ Conn Conn }

// PoliciesChanged says that what Config.PolicyFor answers may have changed.
type PoliciesChanged struct{}

func (Joined) event()          {}
func (Filtered) event()        {}
func (Live) event()            {}
func (Range) event()           {}
func (Published) event()       {}
func (Attached) event()        {}
func (Saved) event()           {}
func (Detached) event()        {}
func (Yield) event()           {}
func (PoliciesChanged) event() {}
func (EventKinds) event()      {}
func (Disconnect) event()      {}
func (SetProfile) event()      {}
func (Count) event()           {}
func (Depth) event()           {}
func (Drain) event()           {}
func (Rebalance) event()       {}
func (WatchMembers) event()    {}
func (HandshakeMoved) event()  {}
func (ListMembers) event()     {}

// Loop is a loop seen from outside.
type Loop interface {
	// Post puts an event into the loop's mailbox and never blocks. It is false where the mailbox is
	// full: a durable Live becomes a hole (the next one shows it, and the loop reads the log), an
	// ephemeral one is counted OVERLOADED. Other events have reserved room. Safe for concurrent
	// use.
	Post(e Event) bool
}
