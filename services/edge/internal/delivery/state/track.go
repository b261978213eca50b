package state

import (
	"slices"
	"unsafe"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// Kind of a track is who shares it.
type Kind uint8

// The kinds.
const (
	// KindPlain is shared by all subscriptions of a connection that began LIVE: one Message for
	// all, without subs.
	KindPlain Kind = iota
	// KindSession is shared by all subscriptions of a connection's session: one cursor for each
	// topic.
	KindSession
	// KindOwn belongs to one subscription that names where it starts.
	KindOwn
)

// KindOf the track that a subscription has.
func KindOf(st *starts.Start) Kind {
	switch st.Mode {
	case wirev1.Start_START_LIVE:
		return KindPlain
	case wirev1.Start_START_SESSION:
		return KindSession
	}
	return KindOwn
}

// Track is where a connection stands in one topic, for the subscriptions that share the delivery.
// It lies in Tracks.Slab: lists that may outlive it hold a TrackRef. The order of its fields
// leaves no gaps: it is a part of what an idle connection takes.
type Track struct {
	sendq.Stream        // what the send queue knows of it: the first field, see TrackOf
	AtTopic      uint32 // in Topic.Tracks
	AtConn       uint32 // in Conn.Tracks
	gen          uint32
	Conn         *Conn
	Topic        *Topic
	Unacked      uint32
	Window       uint16 // 0: only the connection's, which is greater
	Overflow     uint8  // one of those below
	Kind         Kind
	ACK          bool
	Behind       bool
	Reading      bool // waits for a range
	Runs         bool // in line to go on
	Waits        bool // for a window or the queue
	Held         bool // its subscription is not open yet
	Told         Telling
	Lags         bool // listed as behind

	// Epoch and Pos: everything up to Pos was handed on or is part of a gap. Epoch 0: nothing known
	// yet, the next message says.
	Epoch, Pos uint64

	First *Subscription // of the subscriptions that share it
	*TrackMore
}

// Telling is whether another subscription's answer says where a track is: it stays there until that
// subscription shares it.
type Telling uint8

// What a track's place was told as.
const (
	NotTold Telling = iota
	ToldBehind
	ToldLevel // with the live stream: it is not behind but for that
)

// Any reports whether an answer says where it is.
func (t Telling) Any() bool { return t != NotTold }

// Overflows, in as few bytes as they need.
const (
	OverflowDefault    = uint8(wirev1.Overflow_OVERFLOW_DEFAULT)
	OverflowDropOldest = uint8(wirev1.Overflow_OVERFLOW_DROP_OLDEST)
	OverflowConflate   = uint8(wirev1.Overflow_OVERFLOW_CONFLATE)
	OverflowDisconnect = uint8(wirev1.Overflow_OVERFLOW_DISCONNECT)
)

// TrackMore is what few tracks have at a time. It is written through Tracks.More alone: without
// any it is NoTrackMore.
type TrackMore struct {
	Also []*Subscription // that share it, but for the first
	Win  *unacked.Window

	Gap gaps.Gap // that the client has not been told of

	Asked uint64 // first seq of the range that is waited for
	// of the message that is read because the track stands still behind it; 0: none is
	First uint64
	// of a read that failed, or, with Few, for a window that has little room; Few and 0: it has
	// waited
	RetryAt int64
	Range   *exchange.Range   // being handed on
	RangeAt int               //
	Latest  *exchange.Message // CONFLATE: the newest, which waits
	Cursor  *cursor.Cursor    // of the session
	Changed bool              // Cursor has something to be saved

	// An Ack through a seq settles messages up to AckTo; AckSerial names its entry.
	AckTo     uint64
	AckSerial uint32

	Few bool
	// Unnamed says that the client was not told the epoch yet, which a live message or a read
	// brought: it is, ahead of what comes first.
	Unnamed bool

	Rank *RankState // nil: it was never ranked
}

// RankState is what the track of subscriptions with rank_top_k has beside.
type RankState = ranked.State[RankMember]

// RankMember is a track, or a subscription without one.
type RankMember struct {
	Track TrackRef
	Sub   SubscriptionRef
}

// NoTrackMore is that of tracks that have nothing of it.
var NoTrackMore = slab.None[TrackMore]()

// TrackOf finds the track that a stream is the first field of; nil: the stream is nil.
func TrackOf(s *sendq.Stream) *Track {
	return (*Track)(unsafe.Pointer(s))
}

var _ [0]struct{} = [unsafe.Offsetof(Track{}.Stream)]struct{}{}

// TrackRef finds a track, or nil once it is gone.
type TrackRef struct {
	t   *Track
	gen uint32
}

// Ref may outlive the track.
func (t *Track) Ref() TrackRef { return TrackRef{t, t.gen} }

// Get finds the track.
func (r TrackRef) Get() *Track {
	if r.t == nil || r.t.gen != r.gen {
		return nil
	}
	return r.t
}

// IDs are the client's numbers of the subscriptions that are open.
func (t *Track) IDs(dst []uint32) []uint32 {
	if t.First.Open {
		dst = append(dst, t.First.ID)
	}
	for _, s := range t.Also {
		if s.Open {
			dst = append(dst, s.ID)
		}
	}
	return dst
}

// Open reports whether messages may go out: Subscribed was sent for one of its subscriptions.
func (t *Track) Open() bool {
	return t.First.Open || slices.ContainsFunc(t.Also, func(s *Subscription) bool { return s.Open })
}

// Has reports whether a subscription shares the track.
func (t *Track) Has(s *Subscription) bool { return t.First == s || slices.Contains(t.Also, s) }

// HasID reports whether the client has given the number to one that shares the track.
func (t *Track) HasID(id uint32) bool {
	return t.First.ID == id || slices.ContainsFunc(t.Also, func(s *Subscription) bool { return s.ID == id })
}

// Waited reports whether the track goes on, with whatever room its window has, until that is full.
func (t *Track) Waited() bool { return t.Few && t.RetryAt == 0 }

// Follows reports whether it matters to the track when its messages leave.
func (t *Track) Follows() bool { return t.ACK || t.Cursor != nil || t.Latest != nil }

// Lag is how many messages lie between the track and the head of its topic, as far as that is
// known.
func (t *Track) Lag() int64 {
	head := t.Pos
	if t.Topic.Epoch == t.Epoch {
		head = max(head, t.Topic.Last)
	}
	if t.Range != nil && t.Range.Epoch == t.Epoch {
		head = max(head, t.Range.Head)
	}
	return int64(head - t.Pos)
}
