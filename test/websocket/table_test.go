package websocket

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// row is a case of Autobahn's test suite, by its number there. That suite's server sends back what
// it gets; what stands for it here are frames of the mesh inside of the messages: a Ping, which is
// answered, or a Publish to a topic that the client has subscribed to.
type row struct {
	id    string
	parts [][]byte // what is sent

	answers int      // so many Pings of the mesh are answered, 1 and so on
	payload []byte   // what the messages that come hold, one behind the other
	pongs   []string // of WebSocket
	status  uint16   // of the Close that comes; 0: none comes, the connection lives on

	chop  int // it is sent in writes of so many bytes; 0: in all ways
	early int // the end comes when so many parts were sent, and no more are; 0: all are
}

// numbered is a row with several numbers below one.
func numbered(series string, n int, r row) row {
	r.id = series + "." + strconv.Itoa(n)
	return r
}

// filler is frames of the mesh of n bytes that an edge passes over.
func filler(n int) (b []byte) {
	const most = 64 << 10
	for n > 0 {
		body := min(n-wire.HeaderSize, most)
		if rest := n - wire.HeaderSize - body; rest > 0 && rest < wire.HeaderSize {
			body -= wire.HeaderSize
		}
		at := len(b)
		b = append(b, make([]byte, wire.HeaderSize+body)...)
		wire.PutHeader(b[at:], body, wirev1.FrameType(0xfe))
		n -= wire.HeaderSize + body
	}
	return b
}

// pad makes what a message holds size bytes long.
func (c carrier) pad(b []byte, size int) []byte {
	switch {
	case size <= len(b):
		return b
	case c.text:
		return append(b, bytes.Repeat([]byte(" "), size-len(b))...)
	}
	return append(b, filler(size-len(b))...)
}

// ask is a message's content of size bytes that is answered with n.
func (c carrier) ask(n, size int) []byte {
	return c.pad(c.content(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(n)}), size)
}

// publish is a message's content of size bytes, and what of it comes back from topic.
func (c carrier) publish(topic string, size int) (content, payload []byte) {
	const most, around = 256 << 10, 64
	rnd := rand.New(rand.NewPCG(uint64(size), 1))
	for id := uint32(1); ; id++ {
		p := make([]byte, min(most, max(1, size-len(content)-around)))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		b := c.content(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: topic, Payload: p})
		content, payload = append(content, b...), append(payload, p...)
		if size-len(content) < around+16 {
			return c.pad(content, size), payload
		}
	}
}

// topicOf a row.
func topicOf(id string) string { return "websocket/" + id }

// rows are the cases, but for those of UTF-8, which are of text alone.
func (c carrier) rows() []row {
	return slices.Concat(c.framing(), c.pings(), c.reserved(), c.fragmentation(), c.closes(), c.statuses(), c.large())
}

// Series 1. Sizes are those of messages.
func (c carrier) framing() (all []row) {
	series := "1.2"
	if c.text {
		series = "1.1"
	}
	nothing := row{parts: c.empty(), answers: 1}
	if c.text {
		nothing.answers, nothing.status = 0, c.emptyStatus()
	}
	all = append(all, numbered(series, 1, nothing))
	for i, size := range []int{125, 126, 127, 128, 65535, 65536} {
		all = append(all, c.echo(numbered(series, 2+i, row{}), size, size))
	}
	return append(all, c.echo(numbered(series, 8, row{chop: 997}), 65536, 65536))
}

// empty is a message without content, and one with.
func (c carrier) empty() [][]byte {
	return [][]byte{frame(fin|c.op(), nil), frame(fin|c.op(), c.ask(1, 0))}
}

// emptyStatus: a message of text is one frame of the mesh, and none is no JSON.
func (c carrier) emptyStatus() uint16 {
	if c.text {
		return statusOurs + uint16(wirev1.Code_CODE_BAD_FRAME)
	}
	return 0
}

// echo has a message of size bytes come back, which is sent in frames of so many bytes.
func (c carrier) echo(r row, size, fragment int) row {
	if c.text { // whose payload is bytes in base64 there, and one frame alone
		r.parts, r.answers = fragments(c.op(), c.ask(1, min(size, 250<<10)), fragment), 1
		return r
	}
	content, payload := c.publish(topicOf(r.id), size)
	if len(content) != size {
		panic(fmt.Sprintf("%d bytes, not %d", len(content), size))
	}
	r.parts, r.payload = fragments(c.op(), content, fragment), payload
	return r
}

// Series 2.
func (c carrier) pings() []row {
	ping, pong := func(p string) []byte { return frame(fin|opPing, []byte(p)) }, func(p string) []byte { return frame(fin|opPong, []byte(p)) }
	long := string(bytes.Repeat([]byte{0xfe}, 125))
	var ten [][]byte
	var tenPongs []string
	for i := range 10 {
		ten, tenPongs = append(ten, ping(fmt.Sprint("payload-", i))), append(tenPongs, fmt.Sprint("payload-", i))
	}
	return []row{
		{id: "2.1", parts: [][]byte{ping("")}, pongs: []string{""}},
		{id: "2.2", parts: [][]byte{ping("Hello, world!")}, pongs: []string{"Hello, world!"}},
		{id: "2.3", parts: [][]byte{ping("\x00\xff\xfe\xfd\xfc\xfb\x00\xff")}, pongs: []string{"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"}},
		{id: "2.4", parts: [][]byte{ping(long)}, pongs: []string{long}},
		{id: "2.5", parts: [][]byte{ping(long + "*")}, status: statusProtocol},
		{id: "2.6", parts: [][]byte{ping(long)}, pongs: []string{long}, chop: 1},
		{id: "2.7", parts: [][]byte{pong("")}},
		{id: "2.8", parts: [][]byte{pong("unsolicited")}},
		{id: "2.9", parts: [][]byte{pong("unsolicited"), ping("ping")}, pongs: []string{"ping"}},
		{id: "2.10", parts: ten, pongs: tenPongs},
		{id: "2.11", parts: ten, pongs: tenPongs, chop: 1},
	}
}

// Series 3 and 4: bits and opcodes that nobody has agreed on.
func (c carrier) reserved() (all []row) {
	op, good := c.op(), frame(fin|c.op(), c.ask(1, 0))
	bad := func(first byte) []byte { return frame(first, c.ask(2, 0)) }
	ping := frame(fin|opPing, nil)
	all = []row{
		{id: "3.1", parts: [][]byte{bad(fin | 0x10 | op)}, status: statusProtocol},
		{id: "3.2", parts: [][]byte{good, bad(fin | 0x20 | op), ping}, answers: 1, status: statusProtocol},
		{id: "3.3", parts: [][]byte{good, bad(fin | 0x30 | op), ping}, answers: 1, status: statusProtocol},
		{id: "3.4", parts: [][]byte{good, bad(fin | 0x40 | op), ping}, answers: 1, status: statusProtocol, chop: 1},
		{id: "3.5", parts: [][]byte{bad(fin | 0x50 | opBinary)}, status: statusProtocol},
		{id: "3.6", parts: [][]byte{frame(fin|0x60|opPing, []byte("*"))}, status: statusProtocol},
		{id: "3.7", parts: [][]byte{frame(fin|0x70|opClose, []byte{3, 0xe8})}, status: statusProtocol},
	}
	for _, s := range []struct {
		series string
		first  byte
	}{{"4.1", 3}, {"4.2", 11}} {
		for i := range byte(5) {
			r := numbered(s.series, int(i)+1, row{status: statusProtocol})
			switch i {
			case 0:
				r.parts = [][]byte{frame(fin|s.first, nil)}
			case 1:
				r.parts = [][]byte{frame(fin|(s.first+1), []byte("reserved opcode payload"))}
			default:
				r.parts, r.answers = [][]byte{good, bad(fin | (s.first + i)), ping}, 1
			}
			all = append(all, r)
		}
	}
	return append(all,
		row{id: "not masked", parts: [][]byte{good, {fin | op, 1, 'x'}}, answers: 1, status: statusProtocol},
		row{id: "a long length of few", parts: [][]byte{good, {fin | op, 0x80 | 126, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, answers: 1, status: statusProtocol},
		row{id: "a longer length of few", parts: [][]byte{good, {fin | op, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4}}, answers: 1, status: statusProtocol},
		row{id: "a negative length", parts: [][]byte{good, {fin | op, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4}}, answers: 1, status: statusProtocol},
		row{id: "the other kind of message", parts: [][]byte{good, frame(fin|(opText+opBinary-op), []byte("{}"))}, answers: 1, status: statusUnsupported},
	)
}

// Series 5.
func (c carrier) fragmentation() []row {
	op, ping := c.op(), frame(fin|opPing, []byte("ping payload"))
	two := func(n int) (a, b []byte) {
		p := c.ask(n, 0)
		return frame(op, p[:7]), frame(fin|opContinuation, p[7:])
	}
	a, b := two(1)
	whole := frame(fin|op, c.ask(1, 0))
	alone, unfinished := frame(fin|opContinuation, c.ask(2, 0)), frame(opContinuation, c.ask(2, 0))
	p := c.ask(1, 0)
	five := [][]byte{frame(op, p[:2]), frame(opContinuation, p[2:4]), ping, frame(opContinuation, p[4:6]), frame(opContinuation, p[6:9]), ping, frame(fin|opContinuation, p[9:])}
	pong, pongs := []string{"ping payload"}, []string{"ping payload", "ping payload"}
	return []row{
		{id: "5.1", parts: [][]byte{frame(opPing, []byte("fragment1")), alone}, status: statusProtocol},
		{id: "5.2", parts: [][]byte{frame(opPong, []byte("fragment1")), alone}, status: statusProtocol},
		{id: "5.3-5", parts: [][]byte{a, b}, answers: 1},
		{id: "5.6-8", parts: [][]byte{a, ping, b}, answers: 1, pongs: pong},
		{id: "5.9-11", parts: [][]byte{alone, whole}, status: statusProtocol},
		{id: "5.12-14", parts: [][]byte{unfinished, whole}, status: statusProtocol},
		{id: "5.15", parts: [][]byte{a, b, unfinished, whole}, answers: 1, status: statusProtocol},
		{id: "5.16", parts: [][]byte{unfinished, whole, unfinished, whole}, status: statusProtocol},
		{id: "5.17", parts: [][]byte{alone, whole, alone, whole}, status: statusProtocol},
		{id: "5.18", parts: [][]byte{a, frame(fin|op, p[7:])}, status: statusProtocol},
		{id: "5.19-20", parts: five, answers: 1, pongs: pongs},
		{id: "empty fragments", parts: [][]byte{frame(op, nil), frame(opContinuation, nil), frame(opContinuation, p), frame(fin|opContinuation, nil)}, answers: 1},
	}
}

// Series 7 but for the codes: what comes behind Close counts for nothing.
func (c carrier) closes() []row {
	op, whole, bye := c.op(), frame(fin|c.op(), c.ask(1, 0)), closeFrame(statusNormal, "Hello World!")
	behind := frame(fin|op, c.ask(2, 0))
	p := c.ask(1, 0)
	big := row{id: "7.1.6", answers: 2, status: statusNormal}
	big.parts = [][]byte{frame(fin|op, c.ask(1, 256<<10)), frame(fin|op, c.ask(2, 0)), bye, frame(fin|opPing, nil)}
	return []row{
		{id: "7.1.1", parts: [][]byte{whole, bye}, answers: 1, status: statusNormal},
		{id: "7.1.2", parts: [][]byte{bye, bye}, status: statusNormal},
		{id: "7.1.3", parts: [][]byte{bye, frame(fin|opPing, nil)}, status: statusNormal},
		{id: "7.1.4", parts: [][]byte{bye, behind}, status: statusNormal},
		{id: "7.1.5", parts: [][]byte{frame(op, p[:5]), bye, frame(fin|opContinuation, p[5:])}, status: statusNormal},
		big,
		{id: "7.1 and 1 MiB behind", parts: [][]byte{bye, frame(fin|op, c.ask(2, 1<<20))}, status: statusNormal},
		{id: "7.3.1", parts: [][]byte{frame(fin|opClose, nil)}, status: statusNone},
		{id: "7.3.2", parts: [][]byte{frame(fin|opClose, []byte("a"))}, status: statusProtocol},
		{id: "7.3.3", parts: [][]byte{closeFrame(statusNormal, "")}, status: statusNormal},
		{id: "7.3.4", parts: [][]byte{bye}, status: statusNormal},
		{id: "7.3.5", parts: [][]byte{closeFrame(statusNormal, string(bytes.Repeat([]byte("*"), 123)))}, status: statusNormal},
		{id: "7.3.6", parts: [][]byte{closeFrame(statusNormal, string(bytes.Repeat([]byte("*"), 124)))}, status: statusProtocol},
		{id: "7.5.1", parts: [][]byte{closeFrame(statusNormal, "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited")}, status: statusBadData},
	}
}

// Series 7: codes of Close.
func (c carrier) statuses() (all []row) {
	for i, status := range []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		all = append(all, numbered("7.7", i+1, row{parts: [][]byte{closeFrame(status, "")}, status: status}))
	}
	for i, status := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999} {
		all = append(all, numbered("7.9", i+1, row{parts: [][]byte{closeFrame(status, "")}, status: statusProtocol}))
	}
	for i, status := range []uint16{5000, 65535} {
		all = append(all, numbered("7.13", i+1, row{parts: [][]byte{closeFrame(status, "")}, status: statusProtocol}))
	}
	return all
}

// Series 9 and 10, up to 4 MiB.
func (c carrier) large() (all []row) {
	of := func(binary, text string) string {
		if c.text {
			return text
		}
		return binary
	}
	const most = 4 << 20
	for i, size := range []int{64 << 10, 256 << 10, 1 << 20, most} {
		all = append(all, c.echo(numbered(of("9.2", "9.1"), i+1, row{chop: most}), size, size))
	}
	for i, fragment := range []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, most} {
		all = append(all, c.echo(numbered(of("9.4", "9.3"), i+1, row{chop: most}), most, fragment))
	}
	for i, chop := range []int{64, 128, 256, 512, 1024, 2048} {
		all = append(all, c.echo(numbered(of("9.6", "9.5"), i+1, row{chop: chop}), 1<<20, 1<<20))
	}
	for i, size := range []int{0, 16, 64, 256, 1024, 4096} {
		const count = 1000
		r := numbered(of("9.8", "9.7"), i+1, row{answers: count, chop: most})
		for n := range count {
			if size == 0 && !c.text {
				r.parts = append(r.parts, frame(fin|c.op(), nil))
			}
			size := size
			if ask := c.ask(n+1, 0); !c.text && size > len(ask) && size < len(ask)+wire.HeaderSize {
				size = 0 // no frame of the mesh is that short
			}
			r.parts = append(r.parts, frame(fin|c.op(), c.ask(n+1, size)))
		}
		all = append(all, r)
	}
	return append(all, c.echo(row{id: "10.1.1", chop: most}, 65536, 1300))
}
