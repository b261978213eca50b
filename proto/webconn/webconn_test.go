package webconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// pipe is a WebSocket whose other end has said all that it says.
func pipe(said []byte) (*Conn, *recorder) {
	r := &recorder{in: bytes.NewReader(said)}
	return newConn(r), r
}

type recorder struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (r *recorder) Read(b []byte) (int, error)  { return r.in.Read(b) }
func (r *recorder) Write(b []byte) (int, error) { return r.out.Write(b) }

func TestWhatMessagesHold(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 70_000)
	said := append([]byte{0x82, 3, 'a', 'b', 'c', 0x89, 2, 'h', 'i', 0x02, 1, 'd', 0x80, 1, 'e', 0x8a, 0, 0x82, 126, 0, 4}, "fghi"...)
	said = append(append(said, 0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70), long...)
	said = append(said, 0x88, 0)
	c, r := pipe(said)
	got, err := io.ReadAll(c)
	if want := append([]byte("abcdefghi"), long...); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	pong := r.out.Bytes()
	if len(pong) != 8 || pong[0] != 0x8a || pong[1] != 0x82 || pong[6]^pong[2] != 'h' || pong[7]^pong[3] != 'i' {
		t.Errorf("the Ping is answered %x", pong)
	}
}

func TestWhatIsWrittenIsMasked(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		c, r := pipe(nil)
		b := bytes.Repeat([]byte("ab"), n)[:n]
		if m, err := c.Write(b); m != n || err != nil {
			t.Fatal(m, err)
		}
		out := r.out.Bytes()
		head := map[bool]int{true: 2}[n < 126]
		switch {
		case n >= 1<<16:
			head = 10
		case n >= 126:
			head = 4
		}
		mask, payload := out[head:head+4], bytes.Clone(out[head+4:])
		for i := range payload {
			payload[i] ^= mask[i&3]
		}
		if out[0] != 0x82 || out[1]&0x80 == 0 || !bytes.Equal(payload, b) {
			t.Errorf("%d bytes are sent as %x", n, out[:head+4])
		}
	}
}

// Behind Close nothing is written, not even the answer to a Ping, and what the server still says is
// read up to its own Close.
func TestWhoClosesReadsOn(t *testing.T) {
	c, r := pipe([]byte{0x89, 1, 'p', 0x82, 2, 'h', 'i', 0x88, 2, 3, 232})
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	out := bytes.Clone(r.out.Bytes())
	if len(out) != 8 || out[0] != 0x88 || out[1] != 0x82 || out[6]^out[2] != 3 || out[7]^out[3] != 232 {
		t.Errorf("Close is sent as %x", out)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hi" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := c.Write([]byte("late")); !errors.Is(err, net.ErrClosed) || c.CloseWrite() == nil || !bytes.Equal(r.out.Bytes(), out) {
		t.Errorf("%v: behind Close came %x", err, r.out.Bytes()[len(out):])
	}
}

func TestAnswersThatAreNoWebSocket(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nno go": "403 Forbidden: no go",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                 "does not speak pushmesh.v1",
		"\x00\x00\x02\x10\x08\x01":                                 "is not answered by HTTP",
	} {
		here, there := net.Pipe()
		go func() {
			r, err := http.ReadRequest(newConn(there).r)
			if err == nil && (r.Host != "edge:7400" || r.Header.Get("Sec-Websocket-Key") == "") {
				err = errors.New("no good request")
			}
			if err == nil {
				_, err = io.WriteString(there, answer)
			}
			if err != nil {
				t.Error(err)
			}
			_ = there.Close()
		}()
		_ = here.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := Upgrade(t.Context(), here, "edge:7400"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// Whatever comes is read to its end, or refused, and never more is kept than came.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0x82, 3, 'a', 'b', 'c', 0x88, 0})
	f.Add([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0x89, 126, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		c, r := pipe(said)
		got, _ := io.ReadAll(c)
		if len(got) > len(said) || r.out.Len() > 4*len(said) {
			t.Errorf("%d bytes are read, and %d answered, of %d", len(got), r.out.Len(), len(said))
		}
	})
}
