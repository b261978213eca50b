package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// MaxAttempts is how many connections are being made at a time, all of a store's together: a server
// that comes back has other things to do than to greet everybody at once.
const MaxAttempts = 4

// attempts bounds how many connections are being made: from dialling until the server has let us
// in, or the connection is closed.
type attempts struct{ slots chan struct{} }

func newAttempts(n int) *attempts { return &attempts{make(chan struct{}, n)} }

// limit makes connections of cfg, and of its copies, wait for a slot.
func (a *attempts) limit(cfg *pgx.ConnConfig) {
	dial := cfg.DialFunc
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 5 * time.Minute}).DialContext
	}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case a.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			<-a.slots
			return nil, err
		}
		return &attempt{Conn: conn, leave: sync.OnceFunc(func() { <-a.slots })}, nil
	}
	after := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if made := attemptOf(conn.Conn()); made != nil {
			made.leave()
		}
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
}

// attempt is a connection that holds a slot until leave, or its end.
type attempt struct {
	net.Conn
	leave func()
}

// Close gives the slot back.
func (a *attempt) Close() error {
	a.leave()
	return a.Conn.Close()
}

// attemptOf finds it below TLS and whatever else lies on it.
func attemptOf(conn net.Conn) *attempt {
	for conn != nil {
		if a, ok := conn.(*attempt); ok {
			return a
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = inner.NetConn()
	}
	return nil
}
