// Package natsproxy is a fault proxy between the tiers and NATS: it understands the protocol well
// enough to lose single messages, and can cut or freeze connections.
package natsproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy forwards connections to one NATS server. Close ends it; so does the end of the test.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	lose  func(subject string, payload []byte) bool
	conns map[net.Conn]struct{}
	down  bool
}

// Start begins to proxy for target ("host:port").
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL to give to NATS clients.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Lose sets the rule: every message that a client publishes and for which rule is true is lost. A
// nil rule loses nothing. A mesh's subjects are named as in package bus, without the mesh. rule is
// called by one connection's goroutine at a time, under a lock.
func (p *Proxy) Lose(rule func(subject string, payload []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = rule
}

// SetDown cuts all connections and refuses new ones, until it is called with false.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.cut()
	p.wg.Wait()
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.hold(client, server) {
			_ = client.Close()
			continue
		}
		p.wg.Go(func() { p.pipe(client, server, p.publishes) })
		p.wg.Go(func() {
			p.pipe(server, client, func(dst io.Writer, src *bufio.Reader) error {
				_, err := io.Copy(dst, src)
				return err
			})
		})
	}
}

func (p *Proxy) hold(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) pipe(src, dst net.Conn, forward func(io.Writer, *bufio.Reader) error) {
	_ = forward(dst, bufio.NewReaderSize(src, 64<<10))
	_ = src.Close()
	_ = dst.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, src)
	delete(p.conns, dst)
}

// publishes forwards what a client sends, less the messages that the rule loses.
func (p *Proxy) publishes(dst io.Writer, src *bufio.Reader) error {
	for {
		line, err := src.ReadBytes('\n')
		if err != nil {
			return err
		}
		subject, header, size, ok := parsePublish(line)
		if !ok {
			if _, err := dst.Write(line); err != nil {
				return err
			}
			continue
		}
		if size < header {
			return errors.New("natsproxy: bad sizes")
		}
		body := make([]byte, size+2)
		if _, err := io.ReadFull(src, body); err != nil {
			return err
		}
		if p.loses(subject, body[header:size]) {
			continue
		}
		if _, err := dst.Write(append(line, body...)); err != nil {
			return err
		}
	}
}

func (p *Proxy) loses(subject string, payload []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose != nil && p.lose(within(subject), payload)
}

// within is a subject without "pushmesh.", the mesh's name and its id.
func within(subject string) string {
	if parts := strings.SplitN(subject, ".", 4); len(parts) == 4 && parts[0] == "pushmesh" {
		return parts[3]
	}
	return subject
}

// parsePublish reads "PUB subject [reply] size" and "HPUB subject [reply] header size".
func parsePublish(line []byte) (subject string, header, size int, ok bool) {
	f := bytes.Fields(line)
	if len(f) < 3 {
		return "", 0, 0, false
	}
	var err error
	switch string(bytes.ToUpper(f[0])) {
	case "PUB":
	case "HPUB":
		if len(f) < 4 {
			return "", 0, 0, false
		}
		if header, err = strconv.Atoi(string(f[len(f)-2])); err != nil {
			return "", 0, 0, false
		}
	default:
		return "", 0, 0, false
	}
	if size, err = strconv.Atoi(string(f[len(f)-1])); err != nil {
		return "", 0, 0, false
	}
	return string(f[1]), header, size, true
}

// String names the proxy in test output.
func (p *Proxy) String() string { return fmt.Sprintf("natsproxy %s → %s", p.URL(), p.target) }
