package publisher

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestStampIsFoundAgain(t *testing.T) {
	at := time.Unix(1_795_000_000, 123_456_789)
	b := make([]byte, StampSize+3)
	Stamp(b, at)
	for _, text := range [][]byte{b, append([]byte("@@T head "), b...)} {
		if got, ok := Stamped(text); !ok || !got.Equal(at) {
			t.Errorf("got %v, %v from %q", got, ok, text)
		}
	}
	for _, text := range []string{"", "@@TS", "@@TS123", Mark + strings.Repeat("z", 16)} {
		if _, ok := Stamped([]byte(text)); ok {
			t.Errorf("a stamp in %q", text)
		}
	}
}

func FuzzStamped(f *testing.F) {
	b := make([]byte, StampSize)
	Stamp(b, time.Unix(0, 1))
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		at, ok := Stamped(text)
		if !ok {
			return
		}
		again := make([]byte, StampSize)
		Stamp(again, at)
		if !bytes.Contains(bytes.ToLower(text), bytes.ToLower(again)) {
			t.Fatalf("%v from %q", at, text)
		}
	})
}

// What a plain publisher writes, said in each protocol's own words.
func TestPlainPublishers(t *testing.T) {
	const size = 200
	for name, c := range map[string]struct {
		dial  func(addr string) (*Plain, error)
		hello string
		head  string
		tail  string
	}{
		"bare":  {func(a string) (*Plain, error) { return Bare(t.Context(), a, size) }, "p", "", ""},
		"redis": {func(a string) (*Plain, error) { return Redis(t.Context(), a, "a/b", size) }, "", "*3\r\n$7\r\nPUBLISH\r\n$3\r\na/b\r\n$200\r\n", "\r\n"},
		"nats":  {func(a string) (*Plain, error) { return NATS(t.Context(), a, "a/b", size) }, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n", "PUB a.b 200\r\n", "\r\n"},
		"mqtt": {
			func(a string) (*Plain, error) { return MQTT(t.Context(), a, "a/b", size) },
			"\x10\x15\x00\x04MQTT\x04\x02\x00\x00\x00\x09publisher", "\x30\xcd\x01\x00\x03a/b", "",
		},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan []byte, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				said <- nil
				return
			}
			b, _ := io.ReadAll(conn)
			said <- b
		}()
		p, err := c.dial(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(3); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		got, ok := strings.CutPrefix(string(<-said), c.hello)
		if !ok {
			t.Fatalf("%s: no hello in %q", name, got)
		}
		for range 3 {
			head, n := len(c.head), len(c.head)+size+len(c.tail)
			if len(got) < n || got[:head] != c.head || got[head+size:n] != c.tail || !strings.HasPrefix(got[head:], Mark) {
				t.Fatalf("%s: got %q", name, got)
			}
			got = got[n:]
		}
		if got != "" {
			t.Errorf("%s: %q at the end", name, got)
		}
		_ = l.Close()
	}
}
