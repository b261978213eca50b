package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands between clients and a Postgres without TLS. It counts connections that are being
// made, and may hold statements back, have them fail, or let nobody through. It owns its listener,
// and two goroutines for each connection.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	delay    atomic.Pointer[func(inFlight int) time.Duration]
	wire     Wire
	inFlight atomic.Int64

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	attempts []*attempt
	refuse   bool
	closed   bool
}

// attempt is the making of one connection: from its acceptance until the server is ready, or until
// it is closed.
type attempt struct {
	client      net.Conn
	begun, over time.Time
}

// open asks the kernel, which knows of the client's close before a busy proxy has read it.
func (a *attempt) open() (is bool) {
	conn, ok := a.client.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = established(int(fd)) })
	return is && err == nil
}

// NewProxy listens on 127.0.0.1 for the server of base, a postgres:// URL.
func NewProxy(base string) (*Proxy, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("postgres url: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: u.Host, listener: l, conns: map[net.Conn]struct{}{}}
	p.Delay(nil)
	p.wg.Go(p.accept)
	return p, nil
}

// URL is base with the proxy's address in place of the server's.
func (p *Proxy) URL(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// Delay holds every statement back for as long as of says, which is told how many are under way
// with it; nil: not at all.
func (p *Proxy) Delay(of func(inFlight int) time.Duration) {
	if of == nil {
		of = func(int) time.Duration { return 0 }
	}
	p.delay.Store(&of)
}

// Judge has f decide what becomes of each statement from now on, as Wire does; nil: all are passed
// on.
func (p *Proxy) Judge(f func(Statement) Fate) { p.wire.Judge(f) }

// Refuse ends every connection, and each that is made, until it is called with false.
func (p *Proxy) Refuse(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = all
	if all {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// MostAttempts is the largest number of connections that were being made at a time.
func (p *Proxy) MostAttempts() (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.attempts { // the number is largest when one begins
		n := 0
		for _, b := range p.attempts {
			if !b.begun.After(a.begun) && (b.over.IsZero() || b.over.After(a.begun)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Close ends the listener and every connection.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.keep(c) {
			continue
		}
		made := &attempt{client: c}
		p.begin(made)
		p.wg.Go(func() { p.serve(c, made) })
	}
}

// begin an attempt; those that were given up before it are over. Its time is taken under the lock,
// so that none of them can end after it.
func (p *Proxy) begin(made *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made.begun = time.Now()
	for _, a := range p.attempts {
		if a.over.IsZero() && !a.open() {
			a.over = made.begun
		}
	}
	p.attempts = append(p.attempts, made)
}

// keep has Close close a connection. False: it has been closed already, since the proxy is, or
// refuses everybody.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// link is one connection through the proxy.
type link struct {
	proxy   *Proxy
	attempt *attempt
	made    sync.Once
	busy    atomic.Bool // a statement is under way
	tail    []byte      // the last bytes from the server: what they say may come in two reads
}

func (p *Proxy) serve(client net.Conn, made *attempt) {
	l := &link{proxy: p, attempt: made}
	defer func() { l.end(time.Now()) }()
	defer p.drop(client)
	server, err := p.wire.Dial(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	if !p.keep(server) {
		return
	}
	defer p.drop(server)
	defer l.answered()
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.copy(client, server, l.fromServer)
		_ = client.Close()
	}()
	l.copy(server, client, l.fromClient)
	_ = server.Close()
	<-back
}

// end says when the connection was made, or given up.
func (l *link) end(at time.Time) {
	l.made.Do(func() {
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		if l.attempt.over.IsZero() {
			l.attempt.over = at
		}
	})
}

func (l *link) answered() {
	if l.busy.CompareAndSwap(true, false) {
		l.proxy.inFlight.Add(-1)
	}
}

// readyForQuery ends whatever the server has to say, but for the state in the last byte.
var readyForQuery = []byte{'Z', 0, 0, 0, 5}

func (l *link) fromServer(b []byte) {
	l.tail = append(l.tail, b...)
	l.tail = l.tail[max(0, len(l.tail)-len(readyForQuery)-1):]
	if bytes.HasPrefix(l.tail, readyForQuery) {
		l.end(time.Now())
		l.answered()
	}
}

func (l *link) fromClient([]byte) {
	if l.busy.CompareAndSwap(false, true) {
		delay := *l.proxy.delay.Load()
		time.Sleep(delay(int(l.proxy.inFlight.Add(1))))
	}
}

// copy passes on what comes, after see has seen it, until either side ends.
func (l *link) copy(to io.Writer, from io.Reader, see func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			see(buf[:n])
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
