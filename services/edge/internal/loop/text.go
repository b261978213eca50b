package loop

import (
	"errors"
	"math"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/text"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// Connections whose messages are JSON get a text message for each frame. What all subscribers of a
// message share of it is made once for a loop, when the first of them is to get it, and so is who
// is in a topic.

const (
	// mostTexts and mostTextBytes bound what is kept of messages as JSON, for keepTexts at most.
	mostTexts     = 1024
	mostTextBytes = 16 << 20
	keepTexts     = int64(time.Second)
	// textBudget is how many bytes a flush makes JSON of, but for the last frame: about a
	// millisecond.
	textBudget = 256 << 10
	// copiedPerMade is how many bytes of JSON are put together in the time that one takes to make.
	copiedPerMade = 16
	// mostCopied is how much of a text lies side by side with others; what is longer is sent from
	// where it lies.
	mostCopied = 1 << 10
	saidRoom   = 64 << 10
	// keptScratch is how large memory may be that is kept for the next text, in bytes.
	keptScratch = 256 << 10
	// mostText is how long a text message of a client may be; before Welcome it is earlyText.
	mostText  = 256 << 10
	earlyText = 2 * wire.MaxHello
	// textBytesPerUnit of a share: what is read as JSON takes some 5 ns a byte (BenchmarkParse).
	textBytesPerUnit = 200
)

// unsayable is what is sent in the place of a frame of the edge's that can't be JSON.
const unsayable = `{"error":{"code":"CODE_INTERNAL","message":"a frame can't be written as JSON"}}`

// Numbers of the fields of a Message that differ between subscribers.
const (
	numAttempt  = 7
	numScore    = 10
	numSubs     = 11
	numUnranked = 15
)

// texts are messages as JSON, open at their ends, by where their frames lie. The frames' memory is
// held with them, so that nothing else lies there.
type texts struct {
	made  map[*byte][]byte
	runs  map[together][]byte // text messages of several that lie side by side, whole
	bytes int
	since int64  // when what is kept was thrown away last
	work  int    // bytes that this flush has made JSON of
	said  []byte // short texts, in memory that is good until the flush is over
	from  int    // where those in said begin that are in no piece yet
	frame []byte // what came in as a text message
	alone []byte // a frame of the edge's own
	end   []byte // of the message in hand, and the ids in it
	ids   []uint32
}

// together is where frames lie side by side.
type together struct {
	at *byte
	n  int
}

// tired reports whether this flush has made enough: whoever comes now waits for the next one.
func (t *texts) tired() bool { return t.work >= textBudget }

// shared is the body of a Message as JSON, open at its end; nil: it can't be.
func (t *texts) shared(body []byte) []byte {
	key := unsafe.SliceData(body)
	if made, ok := t.made[key]; ok {
		return made
	}
	t.work += len(body)
	made, err := text.AppendMessage(nil, body)
	if err != nil {
		return nil
	}
	t.makeRoom(len(made))
	t.made[key] = made
	return made
}

// presence is a Presence as JSON, which all who watch the topic get; nil: it can't be.
func (t *texts) presence(frame []byte) []byte {
	key := unsafe.SliceData(frame)
	if made, ok := t.made[key]; ok {
		return made
	}
	made, err := text.AppendFrame(nil, frame)
	if err != nil {
		return nil
	}
	t.work += len(frame)
	t.makeRoom(len(made))
	t.made[key] = made
	return made
}

// makeRoom for a text of so many bytes.
func (t *texts) makeRoom(n int) {
	if t.made == nil {
		t.made, t.runs = map[*byte][]byte{}, map[together][]byte{}
	}
	if len(t.made) >= mostTexts || t.bytes+n > mostTextBytes {
		t.forget()
	}
	t.bytes += n
}

func (t *texts) forget() {
	clear(t.made)
	clear(t.runs)
	t.bytes = 0
}

// run is a text message for each of the frames in b, which all who get them share; nil: there is
// one that is not shared, or can't be JSON.
func (t *texts) run(b []byte) []byte {
	key := together{unsafe.SliceData(b), len(b)}
	if made, ok := t.runs[key]; ok {
		return made
	}
	all := make([]byte, 0, 2*len(b))
	for len(b) >= wire.HeaderSize {
		n, kind, _ := wire.Header(b)
		one := b[:wire.HeaderSize+n]
		b = b[len(one):]
		made := t.whole(kind, one)
		if made == nil {
			return nil
		}
		all = append(append(wsframe.AppendHeader(all, wsframe.Text, len(made)+len(t.end)), made...), t.end...)
	}
	t.work += len(all) / copiedPerMade
	t.makeRoom(len(all))
	t.runs[key] = all
	return all
}

// whole is a Message frame without fields of its subscriber's, open at its end, and sets the end;
// nil: it is none, or can't be JSON.
func (t *texts) whole(kind wirev1.FrameType, frame []byte) []byte {
	if kind != wirev1.FrameType_FRAME_TYPE_MESSAGE {
		return nil
	}
	body := frame[wire.HeaderSize:]
	made, ok := t.made[unsafe.SliceData(body)]
	if !ok && !hasTail(body) {
		made = t.shared(body)
	}
	t.end = text.AppendTail(t.end[:0], 0, 0, false, nil)
	return made
}

// appendFrames appends to dst a text message for each frame in pieces, as the hub gathers them:
// whole frames, or the header, the body and the tail of one.
func (t *texts) appendFrames(dst, pieces [][]byte) [][]byte {
	if cap(t.said)-len(t.said) < mostCopied {
		// what is in the one before is in the hands of the sender
		t.said = make([]byte, 0, saidRoom)
	}
	t.from = len(t.said)
	for i := 0; i < len(pieces); i++ {
		b := pieces[i]
		if n, _, ok := wire.Header(b); ok && n > 0 && len(b) == wire.HeaderSize {
			dst = t.appendSplit(dst, pieces[i+1], pieces[i+2])
			i += 2
			continue
		}
		if n, _, _ := wire.Header(b); len(b) > max(mostCopied, wire.HeaderSize+n) {
			if made := t.run(b); made != nil {
				dst = append(t.appendSaid(dst), made)
				continue
			}
		}
		for len(b) >= wire.HeaderSize {
			n, kind, _ := wire.Header(b)
			one := b[:wire.HeaderSize+n]
			b = b[len(one):]
			dst = t.appendFrame(dst, kind, one)
		}
	}
	return t.appendSaid(dst)
}

// appendSplit appends a Message whose tail is its subscriber's alone.
func (t *texts) appendSplit(dst [][]byte, body, tail []byte) [][]byte {
	made := t.shared(body)
	if made == nil {
		return t.say(dst, []byte(unsayable), nil)
	}
	t.tail(tail)
	return t.say(dst, made, t.end)
}

func (t *texts) appendFrame(dst [][]byte, kind wirev1.FrameType, frame []byte) [][]byte {
	if made := t.whole(kind, frame); made != nil {
		return t.say(dst, made, t.end)
	}
	if kind == wirev1.FrameType_FRAME_TYPE_PRESENCE {
		if made := t.presence(frame); made != nil {
			return t.say(dst, made, nil)
		}
	}
	t.work += len(frame)
	out, err := text.AppendFrame(t.alone[:0], frame)
	if err != nil {
		return t.say(dst, []byte(unsayable), nil)
	}
	if t.alone = out; len(out) > mostCopied {
		t.alone = nil // it is sent from where it lies
	}
	return t.say(dst, out, nil)
}

// say appends a text message of two parts; the second one may be changed afterwards, and the first
// one where it is not longer than mostCopied.
func (t *texts) say(dst [][]byte, made, end []byte) [][]byte {
	short := wsframe.MaxHeader + len(end)
	if len(made) <= mostCopied {
		short += len(made)
	}
	if cap(t.said)-len(t.said) < short {
		dst = t.appendSaid(dst)
		t.said, t.from = make([]byte, 0, max(saidRoom, short)), 0
	}
	t.said = wsframe.AppendHeader(t.said, wsframe.Text, len(made)+len(end))
	if len(made) <= mostCopied {
		t.said = append(t.said, made...)
	} else {
		dst = append(t.appendSaid(dst), made)
	}
	t.said = append(t.said, end...)
	return dst
}

// appendSaid appends the texts of said that are in no piece yet.
func (t *texts) appendSaid(dst [][]byte) [][]byte {
	if at := t.from; at < len(t.said) {
		t.from = len(t.said)
		dst = append(dst, t.said[at:len(t.said):len(t.said)])
	}
	return dst
}

// hasTail reports whether a Message that lies whole has fields of its subscriber's: they come last.
func hasTail(body []byte) bool {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return true
		}
		if num == numAttempt || num == numScore || num == numSubs || num == numUnranked {
			return true
		}
		v := protowire.ConsumeFieldValue(num, typ, body[n:])
		if v < 0 {
			return true
		}
		body = body[n+v:]
	}
	return false
}

// tail makes the end of what wire.AppendTail and wire.AppendUnranked have made.
func (t *texts) tail(b []byte) {
	var attempt uint32
	var score float64
	var unranked bool
	t.ids = t.ids[:0]
	for len(b) > 0 {
		num, _, n := protowire.ConsumeTag(b)
		b = b[n:] // the edge has made it: it is whole
		switch num {
		case numAttempt:
			v, n := protowire.ConsumeVarint(b)
			attempt, b = uint32(v), b[n:]
		case numScore:
			v, n := protowire.ConsumeFixed64(b)
			score, b = math.Float64frombits(v), b[n:]
		case numSubs:
			ids, n := protowire.ConsumeBytes(b)
			for b = b[n:]; len(ids) > 0; {
				id, n := protowire.ConsumeVarint(ids)
				t.ids, ids = append(t.ids, uint32(id)), ids[n:]
			}
		default:
			_, n := protowire.ConsumeVarint(b)
			unranked, b = true, b[n:]
		}
	}
	t.end = text.AppendTail(t.end[:0], attempt, score, unranked, t.ids)
}

// rest is called between two flushes: it gives back memory that has grown large, and what has been
// kept long enough.
func (t *texts) rest(now int64) {
	if t.said = t.said[:0]; cap(t.said) > keptScratch {
		t.said = nil
	}
	if cap(t.frame) > keptScratch {
		t.frame = nil
	}
	if cap(t.end) > keptScratch {
		t.end, t.ids = nil, nil
	}
	if t.work = 0; now-t.since > keepTexts {
		t.forget()
		t.since = now
	}
}

// mostText is how long a message of the connection may be.
func (l *Loop) mostText(slot uint32) uint64 {
	if l.hub.Status(slot).Early {
		return earlyText
	}
	return mostText
}

// takeText takes a part of a text message, and feeds the frame that it is once it is whole.
func (l *Loop) takeText(slot uint32, p *peer, e *wsframe.Event) bool {
	w := l.peers.webOf(p)
	whole := e.Payload
	if !e.Last || len(w.text) > 0 {
		l.peers.putText(w, e.Payload)
		whole = w.text
	}
	sound := len(whole)
	if !e.Last {
		sound -= begunRune(whole[w.sound:])
	}
	if !utf8.Valid(whole[w.sound:sound]) {
		l.violated(slot, p, &wsframe.Violation{Status: wsframe.BadData, Text: "a text message is not UTF-8"})
		return false
	}
	if !e.Last {
		w.sound = sound
		return true
	}
	defer l.peers.dropText(w)
	l.spend(p, len(whole)/textBytesPerUnit)
	frame, err := text.Parse(l.texts.frame[:0], whole)
	if err != nil {
		l.refuseText(slot, p, err)
		return false
	}
	l.texts.frame = frame
	return l.feed(slot, p, frame)
}

// begunRune is how many bytes b ends with of a character that may go on.
func begunRune(b []byte) int {
	for n := 1; n < min(len(b)+1, utf8.UTFMax); n++ {
		if end := b[len(b)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// refuseText closes a connection whose message is no frame.
func (l *Loop) refuseText(slot uint32, p *peer, err error) {
	var why *code.Error
	if !errors.As(err, &why) {
		why = code.New(wirev1.Code_CODE_BAD_FRAME, "a message is no frame")
	}
	l.forget(slot, p)
	l.hub.Refuse(slot, why)
}

// putText adds to a text message that has not come whole. It counts as parts of frames do.
func (s *peers) putText(w *web, b []byte) {
	s.kept -= cap(w.text)
	w.text = append(w.text, b...)
	s.kept += cap(w.text)
}

func (s *peers) dropText(w *web) {
	s.kept -= cap(w.text)
	w.text, w.sound = nil, 0
}
