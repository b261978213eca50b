package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// documents are payloads of MaxJSON bytes that are made of one thing each, to find what scanning
// costs at its worst: that is mixed, where no branch can be foretold.
func documents() map[string][]byte {
	const size = MaxJSON
	fill := func(begin, one, end string) []byte {
		n := (size - len(begin) - len(end)) / len(one)
		return []byte(begin + strings.Repeat(one, n) + end)
	}
	list := func(one string) []byte { return fill("["+one, ","+one, "]") }
	nest := strings.Repeat("[", MaxDepth-2) + strings.Repeat("]", MaxDepth-2)
	mixed := []string{"1", "-2.5e-7", `"a"`, `"\n"`, "true", "null", "{}", "[]", `{"k":1}`, `"longer text"`, "123456", `"é"`, " 7 ", "false", "0"}
	var random strings.Builder
	random.WriteString("[0")
	for x := uint64(1); random.Len() < size; {
		x = x*6364136223846793005 + 1442695040888963407
		random.WriteString("," + mixed[(x>>33)%uint64(len(mixed))])
	}
	random.WriteString("]")
	return map[string][]byte{
		"ascii": fill(`"`, "The quick brown fox. ", `"`), "chinese": fill(`"`, "消息推送", `"`), "umlauts": fill(`"`, "aé", `"`), "quotes": fill(`"`, `\"`, `"`),
		"escapes": fill(`"`, `\u00e9`, `"`), "digits": list("1"), "long numbers": list("-12345.678e+9"), "empty strings": list(`""`),
		"short strings": list(`"ab"`), "objects": list(`{"":1}`), "empty": list("{}"), "deep": list(nest), "spaces": fill("[1", " ", "]"),
		"spaced": list(" 1 "), "words": list("null"), "records": list(`{"id":12345,"name":"Ann Example","tags":["a","bc"],"ok":true,"at":1795000000.25}`),
		"pretty": list("{\n    \"id\": 12345,\n    \"name\": \"Ann Example\",\n    \"ok\": true\n  }"), "mixed": []byte(random.String()),
	}
}

func BenchmarkIsJSON(b *testing.B) {
	for name, doc := range documents() {
		if !IsJSON(doc) {
			b.Fatal(name)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				IsJSON(doc)
			}
		})
		b.Run(name+"/encoding", func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				_ = json.Valid(doc) && utf8.Valid(doc)
			}
		})
	}
}

// chat is a message as chats have them, with a payload of so many bytes.
func chat(tb testing.TB, payload []byte) []byte {
	tb.Helper()
	body, err := wire.Body(&wirev1.Message{
		Payload: payload, PublishedAt: 1_795_000_000_123_456, Id: bytes.Repeat([]byte{7}, 16), Headers: map[string]string{"content-type": "application/json"}, From: "ann",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return wire.AppendMessage(nil, "room/7/chat", 42, body)
}

func payload200() []byte {
	return []byte(`{"text":"` + strings.Repeat("hello there ", 13) + `","at":1795000000,"tags":["a","b"]}`)
}

func BenchmarkAppendMessage(b *testing.B) {
	for name, payload := range map[string][]byte{
		"json": payload200(), "base64": bytes.Repeat([]byte{0xff, 1}, 100), "base64 long": bytes.Repeat([]byte{0xff, 1}, 384<<10), "text": []byte(strings.Repeat("plain text ", 18)),
	} {
		b.Run(name, func(b *testing.B) {
			frame, dst := chat(b, payload), []byte(nil)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = AppendMessage(dst[:0], frame[wire.HeaderSize:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTail(b *testing.B) {
	dst, subs := []byte(nil), []uint32{1}
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendTail(dst[:0], 1, 0, false, subs)
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range texts() {
		b.Run(name, func(b *testing.B) {
			dst, text := []byte(nil), []byte(text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = Parse(dst[:0], text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// texts are frames that clients send often.
func texts() map[string]string {
	return map[string]string{
		"ping": `{"ping":{"sentAt":"1795000000123456","lastRttUs":1234}}`, "ack": `{"ack":{"entries":[{"topic":"room/7/chat","seq":"42"}]}}`,
		"nack": `{"nack":{"topic":"room/7/chat","seq":"42","delayMs":500}}`, "acks": `{"ack":{"entries":[` + strings.Repeat(`{"topic":"room/7/chat","seq":"42"},`, 15) + `{"seq":1}]}}`,
		"publish":   `{"publish":{"id":7,"topic":"room/7/chat","payload":` + string(payload200()) + `,"headers":{"content-type":"application/json"}}}`,
		"subscribe": `{"subscribe":{"id":1,"filter":"room/+/chat","ack":true,"start":"START_AFTER_SEQ","positions":[{"topic":"room/7/chat","epoch":"1795000000000000","seq":"42"}]}}`,
	}
}
