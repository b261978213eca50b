package loop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/text"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// speaker is a client whose messages are JSON.
type speaker struct {
	testing.TB
	*webConn
}

func speaks(t testing.TB, raw net.Conn) *speaker {
	t.Helper()
	c := &client{t, raw}
	c.write([]byte(request("Sec-WebSocket-Protocol: pushmesh.v1.json")))
	w := &webConn{Conn: c, in: bufio.NewReader(c)}
	r, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusSwitchingProtocols || r.Header.Get("Sec-Websocket-Protocol") != "pushmesh.v1.json" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	return &speaker{t, w}
}

// say sends a text message in one frame, or in several with a Ping between.
func (s *speaker) say(m string, frames int) {
	s.Helper()
	var out []byte
	for i := range frames {
		part := m[len(m)*i/frames : len(m)*(i+1)/frames]
		first := byte(wsframe.Text)
		if i > 0 {
			first = byte(wsframe.Continuation)
			out = masked(out, 0x80|byte(wsframe.Ping), nil)
		}
		if i == frames-1 {
			first |= 0x80
		}
		out = masked(out, first, []byte(part))
	}
	if _, err := s.Conn.Write(out); err != nil {
		s.Fatal(err)
	}
}

// hear is the next text message, which must have a member of that name; what says an epoch is
// passed over.
func (s *speaker) hear(name string) map[string]any {
	s.Helper()
	for {
		op, p, err := s.next()
		if err != nil {
			s.Fatalf("waiting for %s: %v", name, err)
		}
		if op == wsframe.Pong {
			continue
		}
		var m map[string]map[string]any
		if err := json.Unmarshal(p, &m); op != wsframe.Text || err != nil || len(m) != 1 {
			s.Fatalf("waiting for %s: %d %q, %v", name, op, p, err)
		}
		if m["progress"] != nil && name != "progress" {
			continue
		}
		if m[name] == nil {
			s.Fatalf("waiting for %s: %s", name, p)
		}
		return m[name]
	}
}

func TestMessagesAsJSON(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		g := guard(t, handshake.Config{}, Config{Send: send})
		plain := speaks(t, dial(t, g.Loop).Conn)
		secure := speaks(t, g.dial(g.client()).Conn)
		native := dial(t, g.Loop)
		native.hello(&wirev1.Hello{ClientId: "native"})
		native.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1", Ack: true})
		for i, s := range []*speaker{plain, secure} {
			s.say(fmt.Sprintf(`{"hello":{"version":1,"clientId":"c%d"}}`, i), 1+3*i)
			if w := s.hear("welcome"); w["clientId"] != fmt.Sprint("c", i) {
				t.Errorf("%v", w)
			}
			s.say(`{"subscribe":{"id":1,"filter":"open/1","ack":true}}`, 1)
			s.hear("subscribed")
			s.say(`{"subscribe":{"id":2,"filter":"open/+"}}`, 1)
			s.hear("subscribed")
		}
		long := strings.Repeat("0123456789", 20_000)
		for i, p := range []string{`{"a": [1, 2.50, "x"]}`, "no JSON", "\xff\x00", `"` + long + `"`, ""} {
			g.mesh.Send("open/1", p)
			if m := native.message(); string(m.GetPayload()) != p {
				t.Fatalf("native: %q", m.GetPayload())
			}
			for _, s := range []*speaker{plain, secure} {
				m := s.hear("message")
				if m["topic"] != "open/1" || m["seq"] != fmt.Sprint(i+1) {
					t.Errorf("%v", m)
				}
				_, isJSON := m["payload"]
				if want := json.Valid([]byte(p)); isJSON != want {
					t.Errorf("%q: %v", p, m)
				}
			}
			plain.say(fmt.Sprintf(`{"ack":{"entries":[{"topic":"open/1","seq":"%d"}]}}`, i+1), 2)
		}
		plain.say(`{"ping":{"sentAt":"77"}}`, 1)
		if m := plain.hear("pong"); m["sentAt"] != "77" {
			t.Errorf("%v", m)
		}
		for _, s := range []*speaker{plain, secure} {
			_ = s.Conn.Close()
		}
		eventually(t, "nothing is left", func() bool {
			s := g.Stats()
			return s.Upgraded == 2 && s.WebSockets == 0 && s.QueuedBytes == 0 && s.FrameMemory == 0
		})
	})
}

func TestTextThatIsNoFrame(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	for name, c := range map[string]struct {
		sent []byte
		want uint16
	}{
		"binary":         {masked(nil, 0x82, []byte("x")), wsframe.Unsupported},
		"no JSON":        {masked(nil, 0x81, []byte("hello")), wsframe.StatusOf(wirev1.Code_CODE_BAD_FRAME)},
		"no frame":       {masked(nil, 0x81, []byte(`{"helo":{}}`)), wsframe.StatusOf(wirev1.Code_CODE_UNKNOWN_FRAME)},
		"no Hello":       {masked(nil, 0x81, []byte(`{"ping":{}}`)), wsframe.StatusOf(wirev1.Code_CODE_BAD_FRAME)},
		"no UTF-8":       {masked(nil, 0x81, []byte("{\"hello\":{\"clientId\":\"\xc0\xaf\"}}")), wsframe.BadData},
		"cut UTF-8":      {masked(masked(nil, 0x01, []byte("{\"hello\":{\"clientId\":\"\xe2\x82")), 0x80, []byte(`"}}`)), wsframe.BadData},
		"longer than is": {[]byte{0x81, 0xff, 0, 0, 0, 0, 0x10, 0, 0, 0, 1, 2, 3, 4}, wsframe.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			s := speaks(t, dial(t, g.Loop).Conn)
			if _, err := s.Conn.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			for s.closed == 0 {
				op, p, err := s.next()
				if err != nil {
					t.Fatal(err)
				}
				if op == wsframe.Close {
					s.closed = uint16(p[0])<<8 | uint16(p[1])
				}
			}
			if s.closed != c.want {
				t.Errorf("closed with %d, want %d", s.closed, c.want)
			}
		})
	}
}

// However the hub gathers a frame, whole, in a run or in parts, it becomes the same text.
func TestTextIsTheSameHoweverItIsGathered(t *testing.T) {
	var tx texts
	body := func(seq uint64) []byte {
		return wire.AppendMessage(nil, "open/1", seq, []byte{0x1a, 2, 'h', 'i'})[wire.HeaderSize:]
	}
	for _, x := range []struct {
		attempt  uint32
		score    float64
		subs     []uint32
		unranked bool
	}{{}, {attempt: 3}, {subs: []uint32{1}}, {subs: []uint32{1, 300, 70_000}, attempt: 1, score: -2.5, unranked: true}} {
		shared := body(7)
		tail := wire.AppendTail(nil, x.attempt, x.score, x.subs)
		if x.unranked {
			tail = wire.AppendUnranked(tail)
		}
		whole := append(append(make([]byte, wire.HeaderSize), shared...), tail...)
		wire.PutHeader(whole, len(whole)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_MESSAGE)
		want, err := text.AppendFrame(nil, whole)
		if err != nil {
			t.Fatal(err)
		}
		want = append(wsframe.AppendHeader(nil, wsframe.Text, len(want)), want...)
		for range 2 { // made, then shared
			if got := slices.Concat(tx.appendFrames(nil, [][]byte{whole[:wire.HeaderSize], shared, tail})...); !bytes.Equal(got, want) {
				t.Errorf("in parts %q, want %q", got, want)
			}
			if got := slices.Concat(tx.appendFrames(nil, [][]byte{append(bytes.Clone(whole), whole...)})...); !bytes.Equal(got, append(bytes.Clone(want), want...)) {
				t.Errorf("a run %q, want %q twice", got, want)
			}
		}
	}
	if len(tx.made) > mostTexts || tx.bytes == 0 {
		t.Errorf("%d texts of %d bytes", len(tx.made), tx.bytes)
	}
	for range 3 * mostTexts {
		tx.appendFrames(nil, [][]byte{wire.AppendMessage(nil, "open/1", 1, nil)})
	}
	if len(tx.made) > mostTexts {
		t.Errorf("%d texts are kept", len(tx.made))
	}
}

// Who is in a topic is made JSON of once for all connections of a loop that are told.
func TestPresenceAsJSONIsShared(t *testing.T) {
	tx := texts{}
	m := &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 100}
	for i := range 100 {
		m.Members = append(m.Members, &wirev1.Presence_Member{User: fmt.Sprint("user-", i), State: make([]byte, 32)})
	}
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PRESENCE, m)
	if err != nil {
		t.Fatal(err)
	}
	want, err := text.AppendFrame(nil, frame)
	if err != nil {
		t.Fatal(err)
	}
	want = append(wsframe.AppendHeader(nil, wsframe.Text, len(want)), want...)
	for i := range 3 {
		if got := slices.Concat(tx.appendFrames(nil, [][]byte{frame})...); !bytes.Equal(got, want) {
			t.Fatalf("%d: got %q, want %q", i, got, want)
		}
	}
	if tx.work != len(frame) || tx.bytes == 0 {
		t.Fatalf("JSON of %d bytes is made for a frame of %d, and %d are kept", tx.work, len(frame), tx.bytes)
	}
}

// What was gathered for a connection stays as it is while others are gathered for, whatever they
// get, until the flush is over.
func TestTextsOfAFlushStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tx texts
		var got [][]byte
		var want []byte
		shared := make([][]byte, 4) // frames that several get
		for i := range shared {
			shared[i] = message(uint64(i), rapid.SampledFrom([]int{0, 100, mostCopied - 20, mostCopied + 500, 5000}).Draw(t, "shared"))
		}
		for range rapid.IntRange(1, 60).Draw(t, "connections") {
			var pieces [][]byte
			for range rapid.IntRange(1, 4).Draw(t, "items") {
				whole := bytes.Clone(rapid.SampledFrom(shared).Draw(t, "message"))
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0: // one of the edge's own, short or long
					var err error
					whole, err = wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Message: strings.Repeat("e", rapid.SampledFrom([]int{1, 900, 2000, saidRoom}).Draw(t, "error"))})
					if err != nil {
						t.Fatal(err)
					}
					pieces = append(pieces, whole)
				case 1: // a run
					pieces = append(pieces, append(bytes.Clone(whole), whole...))
					want = appendText(t, want, whole)
				case 2: // what is shared
					whole = rapid.SampledFrom(shared).Draw(t, "again")
					pieces = append(pieces, whole)
				default: // with ids of its own
					tail := wire.AppendTail(nil, 1, 0, make([]uint32, rapid.SampledFrom([]int{1, 3, 20_000}).Draw(t, "ids")))
					head := make([]byte, wire.HeaderSize)
					wire.PutHeader(head, len(whole)-wire.HeaderSize+len(tail), wirev1.FrameType_FRAME_TYPE_MESSAGE)
					pieces = append(pieces, head, whole[wire.HeaderSize:], tail)
					whole = slices.Concat(head, whole[wire.HeaderSize:], tail)
				}
				want = appendText(t, want, whole)
			}
			got = tx.appendFrames(got, pieces)
		}
		if all := slices.Concat(got...); !bytes.Equal(all, want) {
			t.Errorf("%d bytes differ from the %d that are wanted", len(all), len(want))
		}
	})
}

// message is a Message frame with a JSON payload of about so many bytes.
func message(seq uint64, n int) []byte {
	payload := `"` + strings.Repeat("x", n) + `"`
	return wire.AppendMessage(nil, "open/1", seq, protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), payload))
}

func appendText(t require, dst, frame []byte) []byte {
	out, err := text.AppendFrame(nil, frame)
	if err != nil {
		t.Fatal(err)
	}
	return append(wsframe.AppendHeader(dst, wsframe.Text, len(out)), out...)
}

type require interface{ Fatal(args ...any) }

// However long the messages are of which JSON is made, a flush makes so much of it, and the next
// one goes on.
func TestAFlushMakesSoMuchJSON(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	var all []*speaker
	for i := range 6 {
		raw := dial(t, g.Loop).Conn
		if i%2 > 0 {
			raw = g.dial(g.client()).Conn
		}
		s := speaks(t, raw)
		s.say(fmt.Sprintf(`{"hello":{"version":1,"clientId":"c%d"}}`, i), 1)
		s.hear("welcome")
		s.say(`{"subscribe":{"id":1,"filter":"open/1"}}`, 1)
		s.hear("subscribed")
		all = append(all, s)
	}
	const n = 12
	for i := range n {
		g.mesh.Send("open/1", fmt.Sprintf(`[%d%s]`, i, strings.Repeat(`,"long"`, 200<<10/7)))
	}
	for i := range n {
		for _, s := range all {
			m := s.hear("message")
			if p, _ := m["payload"].([]any); len(p) < 1000 || p[0] != float64(i) {
				t.Fatalf("message %d has another payload, of %d", i, len(p))
			}
		}
	}
}

// However a text is cut into frames, it is UTF-8 or not, and where it is not that is said with the
// first frame that tells.
func TestTextIsUTF8HoweverItIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 12),
			rapid.Map(rapid.StringN(0, 8, 24), func(s string) []byte { return []byte(s) }),
			rapid.SliceOfN(rapid.SampledFrom([]byte{'a', 0x80, 0x90, 0xbf, 0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xff}), 0, 8),
		).Draw(t, "text")
		sound := 0
		for at := 1; at <= len(b); at++ {
			n := at - begunRune(b[sound:at])
			if !utf8.Valid(b[sound:n]) {
				for _, rest := range []string{"", "\x80", "\x80\x80", "\x80\x80\x80", "\xbf", "\xbf\xbf", "\xbf\xbf\xbf", "\x90\x80\x80"} {
					if utf8.Valid(append(bytes.Clone(b[:at]), rest...)) {
						t.Fatalf("%q may go on with %q", b[:at], rest)
					}
				}
				return
			}
			sound = n
		}
		if rest := b[sound:]; utf8.Valid(rest) != utf8.Valid(b) {
			t.Fatalf("%q", b)
		}
	})
}
