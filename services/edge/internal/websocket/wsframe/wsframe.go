// Package wsframe cuts and makes the frames of WebSocket (RFC 6455), without a socket: an event
// loop hands in what it has read, in pieces of any size, and gets payloads as they come.
package wsframe

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Op is the opcode of a frame.
type Op uint8

// The opcodes.
const (
	Continuation Op = 0
	Text         Op = 1
	Binary       Op = 2
	Close        Op = 8
	Ping         Op = 9
	Pong         Op = 10
)

func (o Op) control() bool { return o >= Close }

// MaxControl is the longest payload of a control frame, in bytes (RFC 6455, 5.5).
const MaxControl = 125

// MaxHeader is the longest header of a frame that a server sends.
const MaxHeader = 10

// Status codes of Close (RFC 6455, 7.4).
const (
	Normal      = 1000
	GoingAway   = 1001
	Protocol    = 1002
	Unsupported = 1003
	NoStatus    = 1005 // never sent
	BadData     = 1007
	TooLarge    = 1009
	// private codes begin here; ours are private and an error code of the mesh.
	private = 4000
)

// StatusOf is the status that says why a connection is closed.
func StatusOf(why wirev1.Code) uint16 {
	switch why {
	case wirev1.Code_CODE_OK:
		return Normal
	case wirev1.Code_CODE_DRAINING:
		return GoingAway
	}
	return private + uint16(why)
}

// Violation is what a client has sent that no frame may be.
type Violation struct {
	Status uint16
	Text   string
}

func (v *Violation) Error() string { return v.Text }

func protocol(text string) *Violation { return &Violation{Protocol, text} }

// The violations.
var (
	errReserved     = protocol("a WebSocket frame has a reserved bit set: no extension was agreed on")
	errOpcode       = protocol("a WebSocket frame has a reserved opcode")
	errUnmasked     = protocol("a WebSocket frame of a client is not masked")
	errControl      = protocol("a WebSocket control frame is fragmented, or longer than 125 bytes")
	errLength       = protocol("the length of a WebSocket frame takes more bytes than it needs, or is negative")
	errContinuation = protocol("a WebSocket frame continues no message")
	errInterrupted  = protocol("a WebSocket message begins before the one before has ended")
	errCloseLength  = protocol("a WebSocket Close frame has a payload of one byte")
	errCloseStatus  = protocol("a WebSocket Close frame has a status that none may have")
	errCloseReason  = &Violation{BadData, "the reason in a WebSocket Close frame is not UTF-8"}
	errTooLarge     = &Violation{TooLarge, "a WebSocket message is longer than this edge takes"}
)

// Kind is what an Event is.
type Kind uint8

// The kinds of events.
const (
	More Kind = iota // nothing more can be cut from what there is
	Data             // a part of a message
	Pinged
	Ponged
	Closed
)

// Event is what was cut.
type Event struct {
	// Payload lies in what was read, unmasked. Of Data it may be empty.
	Payload []byte
	Kind    Kind
	Op      Op     // of Data: Text or Binary
	Last    bool   // of Data: the message ends with it
	Status  uint16 // of Closed; NoStatus: none was sent
}

// Reader is how far the frames of one client were cut. The zero Reader is at their beginning.
type Reader struct {
	left uint64 // of the frame in hand
	size uint64 // of the message in hand, as its frames have said so far
	mask uint32 // of the frame in hand, turned to its next byte
	op   Op     // of the message in hand; Continuation: none is
	in   bool   // a data frame is in hand
	last bool   // it is its message's last
}

// Idle reports whether no message and no frame has begun.
func (r *Reader) Idle() bool { return !r.in && r.op == Continuation }

// Next cuts the next event from b, unmasks it there, and says how many bytes it was. Messages may
// be most bytes long. A control frame is cut once it has come whole, a data frame piece by piece.
func (r *Reader) Next(b []byte, most uint64) (e Event, used int, v *Violation) {
	if r.in {
		if len(b) == 0 {
			return Event{}, 0, nil
		}
		return r.data(b, 0)
	}
	h, n, v := header(b)
	if v != nil || n == 0 {
		return Event{}, 0, v
	}
	if h.op.control() {
		return control(&h, b, n)
	}
	if v := r.begin(&h, most); v != nil {
		return Event{}, 0, v
	}
	return r.data(b, n)
}

// begin takes the header of a data frame.
func (r *Reader) begin(h *head, most uint64) *Violation {
	switch {
	case h.op == Continuation && r.op == Continuation:
		return errContinuation
	case h.op != Continuation && r.op != Continuation:
		return errInterrupted
	case h.op != Continuation:
		r.op, r.size = h.op, 0
	}
	if r.size += h.length; r.size > most { // both are below 1<<63
		return errTooLarge
	}
	r.left, r.mask, r.in, r.last = h.length, h.mask, true, h.fin
	return nil
}

// data cuts what there is of the frame in hand, behind the first n bytes of b.
func (r *Reader) data(b []byte, n int) (Event, int, *Violation) {
	p := b[n:]
	if uint64(len(p)) > r.left {
		p = p[:r.left]
	}
	r.mask = unmask(p, r.mask)
	r.left -= uint64(len(p))
	e := Event{Kind: Data, Op: r.op, Payload: p}
	if r.left == 0 {
		if r.in = false; r.last {
			e.Last, r.op = true, Continuation
		}
	}
	return e, n + len(p), nil
}

func control(h *head, b []byte, n int) (Event, int, *Violation) {
	end := n + int(h.length)
	if len(b) < end {
		return Event{}, 0, nil
	}
	p := b[n:end]
	unmask(p, h.mask)
	switch h.op {
	case Ping:
		return Event{Kind: Pinged, Payload: p}, end, nil
	case Pong:
		return Event{Kind: Ponged, Payload: p}, end, nil
	}
	e := Event{Kind: Closed, Status: NoStatus}
	switch {
	case len(p) == 0:
		return e, end, nil
	case len(p) == 1:
		return Event{}, 0, errCloseLength
	}
	e.Status, e.Payload = binary.BigEndian.Uint16(p), p[2:]
	switch {
	case !validStatus(e.Status):
		return Event{}, 0, errCloseStatus
	case !utf8.Valid(e.Payload):
		return Event{}, 0, errCloseReason
	}
	return e, end, nil
}

// validStatus reports whether a Close frame may have it: those that RFC 6455 and its registry have
// given out, and what is free for libraries and applications.
func validStatus(s uint16) bool {
	switch {
	case s >= 3000 && s <= 4999:
		return true
	case s == 1004 || s == NoStatus || s == 1006:
		return false
	}
	return s >= 1000 && s <= 1014
}

// head is a frame's header.
type head struct {
	length uint64
	mask   uint32
	op     Op
	fin    bool
}

// header reads the one that b begins with, and says how many bytes it takes; 0: more are needed.
func header(b []byte) (h head, n int, v *Violation) {
	if len(b) < 2 {
		return head{}, 0, nil
	}
	h.fin, h.op = b[0]&0x80 != 0, Op(b[0]&0x0f)
	h.length = uint64(b[1] & 0x7f)
	switch {
	case b[0]&0x70 != 0:
		return head{}, 0, errReserved
	case h.op > Binary && h.op < Close || h.op > Pong:
		return head{}, 0, errOpcode
	case b[1]&0x80 == 0:
		return head{}, 0, errUnmasked
	case h.op.control() && (!h.fin || h.length > MaxControl):
		return head{}, 0, errControl
	}
	n = 2
	switch h.length {
	case 126:
		if n = 4; len(b) < n {
			return head{}, 0, nil
		}
		if h.length = uint64(binary.BigEndian.Uint16(b[2:])); h.length < 126 {
			return head{}, 0, errLength
		}
	case 127:
		if n = 10; len(b) < n {
			return head{}, 0, nil
		}
		if h.length = binary.BigEndian.Uint64(b[2:]); h.length < 1<<16 || h.length >= 1<<63 {
			return head{}, 0, errLength
		}
	}
	if len(b) < n+4 {
		return head{}, 0, nil
	}
	h.mask = binary.LittleEndian.Uint32(b[n:])
	return h, n + 4, nil
}

// unmask takes a mask off, and gives it turned to the byte behind p.
func unmask(p []byte, mask uint32) (next uint32) {
	wide := uint64(mask)<<32 | uint64(mask)
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^wide)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= byte(mask)
		mask = mask>>8 | mask<<24
	}
	return mask
}

// AppendHeader appends the header of a whole message of n bytes, as a server sends it.
func AppendHeader(dst []byte, op Op, n int) []byte {
	first := 0x80 | byte(op)
	switch {
	case n <= MaxControl:
		return append(dst, first, byte(n))
	case n < 1<<16:
		return append(dst, first, 126, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, first, 127), uint64(n))
}

// AppendControl appends a control frame; payload has at most MaxControl bytes.
func AppendControl(dst []byte, op Op, payload []byte) []byte {
	return append(AppendHeader(dst, op, len(payload)), payload...)
}

// AppendClose appends a Close frame. NoStatus: it says nothing. The reason is cut to what fits.
func AppendClose(dst []byte, status uint16, reason string) []byte {
	if status == NoStatus {
		return AppendControl(dst, Close, nil)
	}
	reason = reason[:min(len(reason), MaxControl-2)]
	for !utf8.ValidString(reason) && reason != "" {
		reason = reason[:len(reason)-1]
	}
	dst = AppendHeader(dst, Close, 2+len(reason))
	return append(binary.BigEndian.AppendUint16(dst, status), reason...)
}
