package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/test/load/publisher"
)

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
		"-proto", "redis", "-addr", l.Addr().String(), "-topic", "t", "-conns", "10", "-span", "50ms", "-window", "4",
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
	if err := run(t.Context(), append(args, "-timeout", "300ms")); err == nil || !strings.Contains(err.Error(), "INCOMPLETE") {
		t.Fatalf("nothing was delivered, and load says %v", err)
	}
}
