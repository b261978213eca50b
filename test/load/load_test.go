package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/publisher"
)

func stamped(at time.Time) []byte {
	b := make([]byte, 64)
	publisher.Stamp(b, at)
	return b
}

func TestNextReadsMessages(t *testing.T) {
	at := time.Unix(1_795_000_000, 123_456_789)
	payload := stamped(at)
	pong, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	if err != nil {
		t.Fatal(err)
	}
	push1, err := wire.Append(pong, wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "t", Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string][]byte{
		"push":  push1,
		"redis": fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$%d\r\n%s\r\n", len(payload), payload),
		"nats":  fmt.Appendf(nil, "MSG t 1 %d\r\n%s\r\n", len(payload), payload),
	} {
		p, err := newProtocol(&config{proto: name, topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(bytes.NewReader(append(said, said...)))
		for range 2 {
			got, err := p.next(nil, r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if stamp, ok := stampOf(got); !ok || !stamp.Equal(at) {
				t.Errorf("%s: got stamp %v %v, want %v", name, stamp, ok, at)
			}
		}
		if _, err := p.next(nil, r); err == nil {
			t.Errorf("%s: a message after the end", name)
		}
	}
}

// A server of the redis kind, of 40 lines: what load says about it is known.
func TestRunAgainstAServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var drop atomic.Bool
	subscribe := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				r := bufio.NewReader(conn)
				for line, err := r.ReadString('\n'); err == nil; line, err = r.ReadString('\n') {
					if strings.HasPrefix(line, "SUBSCRIBE") {
						subscribe <- conn // before the answer: whoever has it gets everything
						fmt.Fprint(conn, "*3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n")
					} else if strings.HasPrefix(line, publisher.Mark) {
						for range len(subscribe) {
							to := <-subscribe
							if !drop.Load() {
								fmt.Fprintf(to, "*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$64\r\n%s\r\n", strings.TrimSuffix(line, "\r\n"))
							}
							subscribe <- to
						}
					}
				}
			}()
		}
	}()
	rows := filepath.Join(t.TempDir(), "rows")
	args := []string{
		"-proto", "redis", "-addr", l.Addr().String(), "-topic", "t", "-conns", "10", "-msgs", "20", "-window", "4",
		"-pids", fmt.Sprint(os.Getpid()), "-json", rows,
	}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"name":"redis fan-out to 10, window 4: rate"`) || !strings.Contains(string(text), `"met":null`) {
		t.Fatalf("got %s", text)
	}
	drop.Store(true)
	for range len(subscribe) {
		(<-subscribe).Close()
	}
	if err := run(t.Context(), append(args, "-timeout", "300ms")); err == nil || !strings.Contains(err.Error(), "INCOMPLETE") && !strings.Contains(err.Error(), "timeout") {
		t.Fatalf("nothing was delivered, and load says %v", err)
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("7 (a) b) S 1 1 1 0 -1 4194560 0 0 0 0 150 50 0 0 20 0 9 0 1 1000000 10 18446744073709551615 1"))
	if err != nil || got.cpu != 2*time.Second || got.rss != 10*int64(os.Getpagesize()) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := parseStat([]byte("7 (a) S 1")); err == nil {
		t.Fatal("a short line was taken")
	}
}
