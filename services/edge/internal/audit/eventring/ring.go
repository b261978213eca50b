// Package eventring carries what happened on one event loop to the goroutine that tells the mesh of
// it. Putting never blocks, takes no lock and allocates nothing; what finds no room is counted.
package eventring

import (
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/events"
)

// Size of a ring that was opened, in bytes; a power of two.
const Size = 1 << 20

// maxText is where texts are cut.
const maxText = 255

// Bits of a record's flags.
const (
	flagBit = 1 << iota
	backendBit
)

// maxRecord is enough for every text of a record and for its numbers.
const maxRecord = 6*(maxText+2) + 64

// Record is one event. A text is good as long as the record's owner says; Put copies it.
type Record struct {
	Kind events.Kind
	// Flag is that the session was resumed (Connect), or that ACKs are wanted (Subscribe).
	Flag bool
	// Backend: the connection is a router's, for a backend.
	Backend bool
	// Code is a wirev1.Code; of SlowConsumer, per cent of the queue.
	Code int32
	// At is Unix time in microseconds.
	At uint64
	// Conn is the connection's id.
	Conn uint64
	// Of SlowConsumer, messages and bytes in the queue.
	Epoch, Seq uint64
	// Name is a filter or a topic.
	ClientID, User, Session, Name, Group, Reason string
}

// Ring has one goroutine that puts, the loop's, and one that takes. Positions only grow; a byte's
// place is its position modulo Size.
type Ring struct {
	wake    func()
	buf     []byte
	scratch [maxRecord]byte
	head    atomic.Uint64 // behind the last record: the loop's
	tail    atomic.Uint64 // of the first record: the reader's
	lost    [events.Kinds]atomic.Uint64
}

// New makes a ring. wake is called, on the loop, when there is something to take where there was
// nothing; it must not block.
func New(wake func()) *Ring { return &Ring{wake: wake} }

// Open gives the ring its memory, which it keeps. It is called by the reader, before the loop is
// told that any event is wanted.
func (r *Ring) Open() {
	if r.buf == nil {
		r.buf = make([]byte, Size)
	}
}

// Put copies a record, or counts it as lost.
func (r *Ring) Put(e *Record) {
	b := protowire.AppendVarint(r.scratch[:2], uint64(e.Kind))
	flag := uint64(0)
	if e.Flag {
		flag = flagBit
	}
	if e.Backend {
		flag |= backendBit
	}
	b = protowire.AppendVarint(b, flag)
	b = protowire.AppendVarint(b, uint64(uint32(e.Code)))
	b = protowire.AppendFixed64(b, e.At)
	b = protowire.AppendFixed64(b, e.Conn)
	b = protowire.AppendFixed64(b, e.Epoch)
	b = protowire.AppendFixed64(b, e.Seq)
	b = protowire.AppendString(b, cut(e.ClientID))
	b = protowire.AppendString(b, cut(e.User))
	b = protowire.AppendString(b, cut(e.Session))
	b = protowire.AppendString(b, cut(e.Name))
	b = protowire.AppendString(b, cut(e.Group))
	b = protowire.AppendString(b, cut(e.Reason))
	b[0], b[1] = byte(len(b)>>8), byte(len(b))
	at := r.head.Load()
	if at-r.tail.Load()+uint64(len(b)) > uint64(len(r.buf)) {
		r.lost[e.Kind].Add(1)
		return // there is something to take: the reader looks
	}
	from := at % Size
	n := copy(r.buf[from:], b)
	copy(r.buf, b[n:])
	r.head.Store(at + uint64(len(b)))
	if r.tail.Load() == at { // the reader had taken everything, and may sleep
		r.wake()
	}
}

func cut(s string) string { return s[:min(len(s), maxText)] }
