package pushmesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/bridge"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/webconn"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// sessionsKept is how many edges a subscriber keeps tickets of, so that it comes back to them
// cheaply.
const sessionsKept = 16

// tlsFor completes what a caller wants of TLS.
func tlsFor(cfg *tls.Config, webSocket bool) *tls.Config {
	if cfg == nil {
		return nil
	}
	cfg = cfg.Clone()
	switch {
	case len(cfg.NextProtos) > 0:
	case webSocket:
		cfg.NextProtos = []string{"http/1.1"}
	default:
		cfg.NextProtos = []string{wire.ALPN}
	}
	if cfg.ClientSessionCache == nil {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(sessionsKept)
	}
	return cfg
}

// open dials, says Hello and waits for Welcome.
func (s *Subscriber) open(ctx context.Context, at reconnect.Place) (*link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	hello := &wirev1.Hello{
		Version: wire.Version, ClientId: s.clientID(), Session: s.cfg.Session, HeartbeatMs: ext.Milliseconds(s.cfg.Heartbeat),
		ReceiveWindow: uint32(s.cfg.ReceiveWindow), Agent: s.cfg.Agent, SessionTtlS: uint32((s.cfg.SessionTTL + time.Second - 1) / time.Second),
		Profile: s.cfg.Profile, ProfileVector: s.cfg.ProfileVector,
	}
	if s.cfg.Token != nil {
		var token string
		var err error
		s.tellProgram(func() { token, err = s.cfg.Token(ctx) })
		if errors.Is(err, ErrNoToken) {
			return nil, &Error{Code: CodeUnauthenticated, Message: err.Error()}
		}
		if err != nil {
			return nil, fmt.Errorf("pushmesh: token: %w", err)
		}
		hello.Token = token
	}
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	if err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Message: err.Error()}
	}
	if len(frame)-wire.HeaderSize > wire.MaxHello {
		return nil, &Error{Code: CodeFrameTooLarge, Message: fmt.Sprintf("Hello has %d bytes, %d at most: a shorter Token, Profile or ProfileVector helps", len(frame)-wire.HeaderSize, wire.MaxHello)}
	}
	conn, err := s.dial(ctx, at)
	if err != nil {
		return nil, err
	}
	l := link.New(conn)
	stop := context.AfterFunc(ctx, l.Close)
	err = handshake(l, frame, at.Addr)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func handshake(l *link.Conn, hello []byte, addr string) error {
	t, body, err := l.Greet(hello, addr)
	switch {
	case err != nil:
		return err
	case t == wirev1.FrameType_FRAME_TYPE_ERROR:
		return decodeError(body)
	case t == wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return decodeGoAway(body)
	}
	welcome := &wirev1.Welcome{}
	if proto.Unmarshal(body, welcome) != nil {
		return errBadMessage
	}
	l.SetWelcome(welcome)
	return nil
}

// dial reaches a place, and asks for a WebSocket there where that is wanted.
func (s *Subscriber) dial(ctx context.Context, at reconnect.Place) (net.Conn, error) {
	conn, err := s.dialSecure(ctx, at)
	if err != nil || !s.cfg.WebSocket {
		return conn, err
	}
	web, err := webconn.Upgrade(ctx, conn, at.Name)
	if err != nil {
		return nil, fmt.Errorf("pushmesh: no connection to %s: %w", at.Addr, err)
	}
	return web, nil
}

// dialSecure reaches a place, and shakes hands there where that is wanted.
func (s *Subscriber) dialSecure(ctx context.Context, at reconnect.Place) (net.Conn, error) {
	conn, err := s.cfg.Dial(ctx, at.Addr)
	var said *Error // a router's
	switch {
	case errors.As(err, &said):
		return nil, said
	case err != nil:
		return nil, fmt.Errorf("pushmesh: no connection: %w", err)
	}
	if s.cfg.TLS == nil {
		return conn, nil
	}
	cfg := s.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		if cfg.ServerName, _, err = net.SplitHostPort(at.Name); err != nil {
			cfg.ServerName = at.Name
		}
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("pushmesh: no connection to %s: the TLS handshake failed: %w", at.Addr, err)
	}
	return secure, nil
}

// throughRouter is a SubscriberConfig.Dial for backends.
func throughRouter(opts ...grpc.DialOption) func(ctx context.Context, addr string) (net.Conn, error) {
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return func(ctx context.Context, addr string) (net.Conn, error) { return dialRouter(ctx, addr, opts) }
}

func dialRouter(ctx context.Context, addr string, opts []grpc.DialOption) (net.Conn, error) {
	conn, err := bridge.Dial(ctx, addr, append(windows(), opts...), func(err error) *wirev1.Error {
		e := connFault(addr, err)
		return &wirev1.Error{Code: wirev1.Code(e.Code), Message: e.Message, RetryAfterMs: uint32(e.RetryAfter.Milliseconds())}
	})
	if err != nil {
		return nil, connFault(addr, err)
	}
	return conn, nil
}
