package prepare

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func isRPC(raw string) bool { return strings.HasPrefix(raw, "grpc:") }

// rpc asks by gRPC, on a connection for each host that is closed once it was not used for a while.
type rpc struct {
	guard *outbound.Guard
	idle  time.Duration

	mu    sync.Mutex
	conns map[string]*conn
	ended bool
}

type conn struct {
	*grpc.ClientConn
	users int
	// unused closes it; it runs while there are no users.
	unused *time.Timer
}

func newRPC(g *outbound.Guard, idle time.Duration) *rpc {
	return &rpc{guard: g, idle: idle, conns: map[string]*conn{}}
}

func (r *rpc) ask(ctx context.Context, raw string, what *pushmeshv1.PrepareRequest) wirev1.Code {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil {
		return wirev1.Code_CODE_INVALID_ARGUMENT
	}
	c, err := r.use(u.Host)
	if err != nil {
		return wirev1.Code_CODE_UNAVAILABLE
	}
	defer r.leave(u.Host, c)
	_, err = pushmeshv1.NewPrepareServiceClient(c).Prepare(ctx, what, grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(outbound.MostAnswer))
	switch status.Code(err) {
	case codes.OK:
		return wirev1.Code_CODE_OK
	case codes.DeadlineExceeded: // the other side knows the deadline too
		return wirev1.Code_CODE_ACK_TIMEOUT
	case codes.Unavailable, codes.Canceled:
		return wirev1.Code_CODE_UNAVAILABLE
	}
	return wirev1.Code_CODE_FORBIDDEN
}

// use finds or makes the connection to a host.
func (r *rpc) use(host string) (*conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conns[host]
	if c == nil {
		// passthrough: the guard resolves the name itself, and judges what it stands for.
		cc, err := grpc.NewClient("passthrough:///"+host,
			grpc.WithContextDialer(func(ctx context.Context, host string) (net.Conn, error) { return r.guard.Dial(ctx, "tcp", host) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
			grpc.WithMaxHeaderListSize(outbound.MostAnswer), grpc.WithUserAgent("pushmesh"),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second,
			}))
		if err != nil {
			return nil, err
		}
		c = &conn{ClientConn: cc}
		c.unused = time.AfterFunc(r.idle, func() { r.drop(host, c) })
		r.conns[host] = c
	}
	c.unused.Stop()
	c.users++
	return c, nil
}

func (r *rpc) leave(host string, c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	if r.ended {
		r.shut(host, c)
		return
	}
	c.unused.Reset(r.idle)
}

// drop closes a connection, unless it is used again or gone.
func (r *rpc) drop(host string, c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.users == 0 && r.conns[host] == c {
		r.shut(host, c)
	}
}

func (r *rpc) shut(host string, c *conn) {
	delete(r.conns, host)
	c.unused.Stop()
	_ = c.Close() // it says no more than that it was closed already
}

func (r *rpc) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for host, c := range r.conns {
		if c.users == 0 {
			r.shut(host, c)
		}
	}
}
