package text

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"ping":{}}`, ``},
		{" {\n\"ping\" :\t{ } }\r\n", ``},
		{`{"ping":{"sentAt":"18446744073709551615","lastRttUs":7}}`, `sent_at:18446744073709551615 last_rtt_us:7`},
		{`{"ping":{"sentAt":12,"lastRttUs":"7"}}`, `sent_at:12 last_rtt_us:7`},
		{`{"ping":{"sentAt":null,"lastRttUs":0}}`, ``},
		{`{"pi\u006eg":{"se\u006etAt":1}}`, `sent_at:1`},
		{`{"ack":{"entries":[{"topic":"a\/b","seq":"1","through":true},{},{"epoch":"3","sub":4}]}}`, `entries:{topic:"a/b" seq:1 through:true} entries:{} entries:{epoch:3 sub:4}`},
		{`{"ack":{"entries":[ ]}}`, ``},
		{`{"ack":{"entries":null}}`, ``},
		{`{"nack":{"topic":"é\ud83d\ude00\n","reason":"` + strings.Repeat("x", 200) + `"}}`, `topic:"é😀\n" reason:"` + strings.Repeat("x", 200) + `"`},
		{`{"subscribe":{"start":"START_LAST_N","overflow":2,"noEcho":false}}`, `start:START_LAST_N overflow:OVERFLOW_CONFLATE`},
		{`{"subscribe":{"start":-7}}`, `start:-7`},
		{`{"publish":{"payload": {"a" : 1} , "id":1}}`, `id:1 payload:"{\"a\" : 1}"`},
		{`{"publish":{"payload":null}}`, `payload:"null"`},
		{`{"publish":{"payload":"\ud800"}}`, `payload:"\"\\ud800\""`},
		{`{"publish":{"payloadBase64":"AP8="}}`, `payload:"\x00\xff"`},
		{`{"publish":{"payloadBase64":"_-8"}}`, `payload:"\xff\xef"`},
		{`{"publish":{"payloadBase64":"\/+8="}}`, `payload:"\xff\xef"`},
		{`{"publish":{"payloadBase64":""}}`, ``},
		{`{"publish":{"headers":{"":"","a":"b","\u0061\u0062":"` + strings.Repeat("v", 300) + `"}}}`, `headers:{key:"" value:""} headers:{key:"a" value:"b"} headers:{key:"ab" value:"` + strings.Repeat("v", 300) + `"}`},
		{
			`{"hello":{"profile":{"a":-1.5e3,"b":"NaN","c":"-Infinity","d":"0.25"},"profileVector":[0,1e-3,"Infinity"],"features":["","x"],"ticket":"AAE="}}`,
			`profile:{key:"a" value:-1500} profile:{key:"b" value:nan} profile:{key:"c" value:-inf} profile:{key:"d" value:0.25} profile_vector:[0,1e-3,inf] features:["","x"] ticket:"\x00\x01"`,
		},
		{`{"claim":{"op":"OP_WATCH","token":"9","noWait":true}}`, `op:OP_WATCH token:9 no_wait:true`},
	} {
		frame, err := Parse([]byte("before"), []byte(c.text))
		if err != nil || !bytes.HasPrefix(frame, []byte("before")) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got := decoded(t, frame[len("before"):])
		want := got.ProtoReflect().New().Interface()
		if err := prototext.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s\ngot  %v\nwant %v", c.text, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat("é", 300)
	for _, c := range []struct{ text, want string }{
		{``, "at byte 0: a text is an object with one member, which is named after the frame"},
		{`[]`, "at byte 0: a text is an object"},
		{`{}`, "at byte 1: a string is expected"},
		{`{"ping":{}`, "at byte 10: a text is an object"},
		{`{"ping":{},"ping":{}}`, "at byte 10: a text is an object"},
		{`{"ping":{}} {}`, "at byte 12: there is something behind the frame"},
		{`{"ping":null}`, "at byte 8, ping: an object is expected"},
		{`{"ping" {}}`, "at byte 8, ping: a colon is expected"},
		{`{"Ping":{}}`, `UNKNOWN_FRAME: at byte 1: there is no frame "Ping"`},
		{`{"` + long + `":{}}`, `at byte 1: there is no frame "\u00e9`},
		{`{"ping":{"at":1}}`, `at byte 9, ping: there is no member "at"`},
		{`{"ping":{"sent_at":1}}`, `at byte 9, ping: there is no member "sent_at", but sentAt`},
		{`{"ping":{"sentAt":1,"sentAt":1}}`, "at byte 20, ping.sentAt: the member is there twice"},
		{`{"ping":{"sentAt":null,"sentAt":1}}`, "ping.sentAt: the member is there twice"},
		{`{"ping":{"sentAt":1,}}`, "at byte 20, ping: a string is expected"},
		{`{"ping":{"sentAt":1 "b":2}}`, "at byte 20, ping: a comma or '}' is expected"},
		{`{"ping":{"sentAt":}}`, "at byte 18, ping.sentAt: a whole number from 0 to 18446744073709551615, in a string or not, is expected"},
		{`{"ping":{"sentAt":18446744073709551616}}`, "a whole number"},
		{`{"ping":{"sentAt":-1}}`, "a whole number"},
		{`{"ping":{"sentAt":1.0}}`, "a whole number"},
		{`{"ping":{"sentAt":1e3}}`, "a whole number"},
		{`{"ping":{"sentAt":01}}`, "a whole number"},
		{`{"ping":{"sentAt":""}}`, "a whole number"},
		{`{"ping":{"sentAt":"1}}`, "a whole number"},
		{`{"ping":{"sentAt":" 1"}}`, "a whole number"},
		{`{"ping":{"lastRttUs":4294967296}}`, "ping.lastRttUs: a whole number from 0 to 4294967295 is expected"},
		{`{"ack":{"entries":{}}}`, "at byte 18, ack.entries: an array is expected"},
		{`{"ack":{"entries":[{},{"seq":"1","sub":true}]}}`, "at byte 39, ack.entries[1].sub: a whole number"},
		{`{"ack":{"entries":[null]}}`, "ack.entries[0]: an object is expected"},
		{`{"ack":{"entries":[{},]}}`, "ack.entries[1]: an object is expected"},
		{`{"ack":{"entries":[{}`, "ack.entries[0]: a comma or ']' is expected"},
		{`{"ack":{"entries":[{"through":1}]}}`, "ack.entries[0].through: true or false is expected"},
		{`{"nack":{"topic":1}}`, "nack.topic: a string is expected"},
		{`{"nack":{"topic":"a}}`, "nack.topic: the string has no end"},
		{`{"nack":{"topic":"\x"}}`, "at byte 18, nack.topic: there is no such escape"},
		{`{"nack":{"topic":"\ud800"}}`, "at byte 18, nack.topic: there is no such escape"},
		{`{"nack":{"topic":"\ud800\u0041"}}`, "no such escape"},
		{`{"nack":{"topic":"\udc00\ud800"}}`, "no such escape"},
		{`{"nack":{"topic":"\u12`, "no such escape"},
		{`{"nack":{"topic":"\`, "no such escape"},
		{"{\"nack\":{\"topic\":\"a\x01\"}}", "a control character in a string must be escaped"},
		{"{\"nack\":{\"topic\":\"\xff\"}}", "nack.topic: it is not UTF-8"},
		{"{\"nack\":{\"\xff\":1}}", "nack: it is not UTF-8"},
		{`{"subscribe":{"start":"LIVE"}}`, `subscribe.start: the name of a value is expected, as START_EARLIEST, and not "LIVE"`},
		{`{"subscribe":{"start":-"1"}}`, "subscribe.start: the name of a value is expected"},
		{`{"subscribe":{"start":2147483648}}`, "the name of a value is expected"},
		{`{"publish":{"payload":1,"payloadBase64":""}}`, "at byte 24, publish.payloadBase64: the payload is there twice: it is payload or payloadBase64"},
		{`{"publish":{"payloadBase64":"","payload":1}}`, "publish.payload: the payload is there twice"},
		{`{"publish":{"payload":}}`, "at byte 22, publish.payload: a JSON value is expected"},
		{`{"publish":{"payload":{"a":tru}}}`, "at byte 27, publish.payload: a JSON value is expected"},
		{`{"publish":{"payload":` + strings.Repeat("[", MaxDepth+1), "at byte 534, publish.payload: it is deeper than 512 objects and arrays"},
		{"{\"publish\":{\"payload\":\"\xff\"}}", "at byte 22, publish.payload: it is not UTF-8"},
		{`{"publish":{"payloadBase64":"A"}}`, "publish.payloadBase64: a string in base64 is expected"},
		{`{"publish":{"payloadBase64":"AP\n8="}}`, "a string in base64 is expected"},
		{`{"publish":{"payloadBase64":"A\n\n\n\nP8="}}`, "a string in base64 is expected"},
		{`{"publish":{"payloadBase64":"+_8="}}`, "a string in base64 is expected"},
		{`{"publish":{"payloadBase64":1}}`, "a string is expected"},
		{`{"publish":{"headers":[]}}`, "publish.headers: an object is expected"},
		{`{"publish":{"headers":{"a":null}}}`, "publish.headers: a string is expected"},
		{`{"publish":{"headers":{1:"a"}}}`, "publish.headers: a string is expected"},
		{`{"publish":{"headers":{"a" "a"}}}`, "publish.headers: a colon is expected"},
		{`{"publish":{"headers":{"a":"b";}}}`, "publish.headers: a comma or '}' is expected"},
		{`{"publish":{"headers":{"a":"b","c":"` + long + `","\u0061":"d"}}}`, "publish.headers: the key is there twice"},
		{`{"publish":{"headers":{"` + long + `":"b","` + long + `":"d"}}}`, "publish.headers: the key is there twice"},
		{`{"publish":{"headers":{"c":"` + long + `","c":""}}}`, "publish.headers: the key is there twice"},
		{`{"hello":{"profile":{"a":1e999}}}`, "hello.profile: the number is too large"},
		{`{"hello":{"profile":{"a":0x1}}}`, "hello.profile: a comma or '}' is expected"},
		{`{"hello":{"profile":{"a":"0x1"}}}`, "hello.profile: a number is expected"},
		{`{"hello":{"profile":{"a":"inf"}}}`, "a number is expected"},
		{`{"hello":{"profile":{"a":+1}}}`, "a number is expected"},
		{`{"hello":{"profile":{"a":"1}}}`, "the string has no end"},
		{`{"hello":{"profileVector":[1e39]}}`, "hello.profileVector[0]: the number is too large"},
		{`{"message":{"mesh":""}}`, `message: there is no member "mesh"`},
	} {
		frame, err := Parse([]byte("before"), []byte(c.text))
		if err == nil || string(frame) != "before" {
			t.Errorf("%.80s is taken", c.text)
			continue
		}
		if got := err.Error(); !strings.Contains(got, c.want) || len(got) > 200 || !ascii(got) {
			t.Errorf("%.80s\ngot  %q\nwant %q", c.text, got, c.want)
		}
		if c := code.Of(err); c != wirev1.Code_CODE_BAD_FRAME && c != wirev1.Code_CODE_UNKNOWN_FRAME {
			t.Errorf("%v: the code is %v", err, c)
		}
	}
}

func ascii(s string) bool {
	for _, c := range []byte(s) {
		if c >= utf8.RuneSelf || c < ' ' {
			return false
		}
	}
	return true
}

// What a text with very many small elements takes is no more than three times its length, and what
// follows can count them.
func TestManySmallElementsTakeLittle(t *testing.T) {
	const n = 300_000
	for name, text := range map[string]string{
		"positions": `{"subscribe":{"positions":[{}` + strings.Repeat(",{}", n) + `]}}`,
		"entries":   `{"ack":{"entries":[{}` + strings.Repeat(",{}", n) + `]}}`,
		"headers":   `{"publish":{"headers":{"":""` + distinct(n, `""`) + `}}}`,
		"profile":   `{"hello":{"profile":{"":0` + distinct(n, "1") + `}}}`,
		"floats":    `{"hello":{"profileVector":[0` + strings.Repeat(",0", n) + `]}}`,
		"features":  `{"hello":{"features":[""` + strings.Repeat(`,""`, n) + `]}}`,
		"spaces":    `{"ping":{` + strings.Repeat(" ", n) + `}}`,
		"escapes":   `{"nack":{"topic":"` + strings.Repeat(`\u00e9`, n) + `"}}`,
	} {
		frame, err := Parse(nil, []byte(text))
		if err != nil || len(frame) > 3*len(text) {
			t.Errorf("%s: %d bytes make %d (%v)", name, len(text), len(frame), err)
		}
		dst := make([]byte, 0, 3*len(text))
		// more runs than one: a single allocation of another goroutine is none of ours
		if allocs := testing.AllocsPerRun(3, func() { _, _ = Parse(dst, []byte(text)) }); allocs > 1 {
			// the text
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// distinct are n members of different names.
func distinct(n int, value string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"`)
		for ; i > 0; i /= 26 {
			b.WriteByte('a' + byte(i%26))
		}
		b.WriteString(`-":` + value)
	}
	return b.String()
}

func TestFrequentFramesAllocateNothing(t *testing.T) {
	for name, text := range texts() {
		dst, in := make([]byte, 0, 4<<10), []byte(text)
		if n := testing.AllocsPerRun(10, func() { dst, _ = Parse(dst[:0], in) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for _, payload := range [][]byte{payload200(), bytes.Repeat([]byte{0xff}, 200)} {
		dst, frame := make([]byte, 0, 4<<10), chat(t, payload)
		if n := testing.AllocsPerRun(10, func() {
			dst, _ = AppendMessage(dst[:0], frame[wire.HeaderSize:])
			dst = AppendTail(dst, 1, 0.5, true, []uint32{1})
		}); n != 0 {
			t.Errorf("a message of %d bytes: %v allocations", len(frame), n)
		}
	}
}

// FuzzParse takes any bytes for a text: what is refused is refused in words that may be sent back,
// and what is taken is a frame that protojson reads alike, and that is written and read again as it
// is.
func FuzzParse(f *testing.F) {
	for _, text := range texts() {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		`{"hello":{"clientId":"a","profile":{"a":1.5},"profileVector":[1,"NaN"],"ticket":"AA=="}}`, `{"publish":{"payloadBase64":"_-8","headers":{"a":"b"}}}`,
		`{"claim":{"op":"OP_RENEW","token":"7"}}`, `{"welcome":{"features":["a"]}}`, `{"nack":{"topic":"\ud83d\ude00","seq":null}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		frame, err := Parse(nil, in)
		if err != nil {
			if s := err.Error(); len(s) > 200 || !ascii(s) || frame != nil {
				t.Fatalf("%q: %q", in, s)
			}
			return
		}
		if len(frame) > 3*len(in) {
			t.Fatalf("%d bytes make %d", len(in), len(frame))
		}
		got := decoded(t, frame)
		_, ft, _ := wire.Header(frame)
		if inner, ok := jsonOf(t, in).(map[string]any)[byType[ft].name].(map[string]any); ok {
			sameAsProtojson(t, in, got, inner)
		}
		text, err := AppendFrame(nil, frame)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(nil, text)
		if err != nil {
			if strings.Contains(err.Error(), "the key is there twice") {
				// behind those that are compared
				return
			}
			t.Fatalf("%s: %v", text, err)
		}
		if m := decoded(t, again); !proto.Equal(m, got) {
			t.Fatalf("%s\ngot  %v\nwant %v", text, m, got)
		}
	})
}

// sameAsProtojson compares a message with what protojson reads, payloads aside.
func sameAsProtojson(t *testing.T, in []byte, got proto.Message, members map[string]any) {
	t.Helper()
	if _, ok := members["payload"]; ok {
		return
	}
	if _, ok := members["payloadBase64"]; ok {
		return
	}
	at := bytes.IndexByte(in, ':')
	end := bytes.LastIndexByte(in, '}')
	want := got.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(in[at+1:end], want); err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	if !proto.Equal(got, want) {
		t.Fatalf("%q\ngot  %v\nwant %v", in, got, want)
	}
}

// FuzzAppendFrame takes any bytes for the body of each frame: what protobuf decodes is written, and
// says the same when it is read again.
func FuzzAppendFrame(f *testing.F) {
	for _, m := range []struct {
		t wirev1.FrameType
		m proto.Message
	}{
		{wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "a", Profile: map[string]float64{"a": 1}, ProfileVector: []float32{1, 2}}},
		{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "a", Payload: []byte("{}"), Headers: map[string]string{"a": "b"}, Subs: []uint32{1, 300}}},
		{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: 1, Positions: []*wirev1.Subscribed_TopicPosition{{Topic: "a", Epoch: 1}, {}}}},
		{wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_LOST, Code: wirev1.Code_CODE_EXPIRED}},
		{wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: "a", From: 1, To: 2, Subs: []uint32{1}}},
	} {
		body, err := proto.Marshal(m.m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(m.t), body)
	}
	// a tag that is longer than it must be
	f.Add(byte(wirev1.FrameType_FRAME_TYPE_WELCOME), []byte("\xc8\x000"))
	f.Fuzz(func(t *testing.T, ft byte, body []byte) {
		if len(body) > wire.MaxBody {
			return
		}
		frame := append([]byte{0, 0, 0, 0}, body...)
		wire.PutHeader(frame, len(body), wirev1.FrameType(ft))
		text, err := AppendFrame(nil, frame)
		if int(ft) >= len(byType) || byType[ft] == nil {
			if err == nil {
				t.Fatalf("a frame of type %d is %s", ft, text)
			}
			return
		}
		m := newMessage(t, byType[ft])
		if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m) != nil {
			return
		}
		if err != nil || !isJSON(text) && depthOf(text) <= MaxDepth {
			t.Fatalf("%v is %q (%v)", m, text, err)
		}
		again, err := Parse(nil, text)
		if err != nil {
			if strings.Contains(err.Error(), "the key is there twice") {
				// the last one counts, on both sides
				return
			}
			t.Fatalf("%s: %v", text, err)
		}
		if m, ok := m.(*wirev1.Message); ok {
			m.Mesh = nil
		}
		trimmed(m)
		if got := decoded(t, again); !proto.Equal(got, m) {
			t.Fatalf("%s\ngot  %v\nwant %v", text, got, m)
		}
	})
}
