package loop

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// guarded is a loop that takes TLS too, on a mesh in memory.
type guarded struct {
	testing.TB
	*Loop
	mesh *upstreamtest.Mesh
	ca   *testca.Authority
	pool *handshake.Pool
}

// guard starts one. pool's and cfg's zero values take what tests need.
func guard(t testing.TB, pool handshake.Config, cfg Config) *guarded {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Certificate("localhost")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{TB: t, ca: ca}
	pool.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{wire.ALPN, "http/1.1"}}
	pool.Workers, pool.Most, pool.Patience = cmp.Or(pool.Workers, 1), cmp.Or(pool.Most, 100), cmp.Or(pool.Patience, time.Hour)
	pool.Post = func(_ uint16, e exchange.Event) bool { return g.Post(e) }
	g.pool = handshake.New(pool)
	g.mesh = upstreamtest.New(func(e exchange.Event) { g.Post(e) })
	cfg.EdgeID, cfg.Mesh, cfg.ListenAddr, cfg.Poller, cfg.Handshakes = "edge", g.mesh, "127.0.0.1:0", testPoller, g.pool
	cfg.PolicyFor = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}}}).For
	cfg.Limits = usual(cfg.Limits)
	if g.Loop, err = single(cfg); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := g.pool.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

// client has the configuration of a client that trusts the loop.
func (g *guarded) client() *tls.Config {
	return &tls.Config{RootCAs: g.ca.Pool(), ServerName: "localhost", NextProtos: []string{wire.ALPN}}
}

// over shakes hands over raw; nil: over a socket of its own.
func (g *guarded) over(raw net.Conn, cfg *tls.Config) (*client, error) {
	g.Helper()
	if raw == nil {
		raw = dial(g, g.Loop).Conn
	}
	c := tls.Client(raw, cfg)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return &client{g, c}, c.Handshake()
}

func (g *guarded) dial(cfg *tls.Config) *client {
	g.Helper()
	c, err := g.over(nil, cfg)
	if err != nil {
		g.Fatal(err)
	}
	return c
}

// closed waits until so many connections have ended for that reason, and nothing is left of them.
func (g *guarded) closed(why wirev1.Code, n uint64) {
	g.Helper()
	eventually(g, why.String()+" is counted", func() bool { return g.Stats().Closes[why] == n })
	eventually(g, "nothing is left", func() bool {
		s := g.Stats()
		return s.Connections == 0 && s.Secure == 0 && s.QueuedBytes == 0 && g.pool.Stats().UnderWay == 0
	})
}

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

func TestTLS(t *testing.T) {
	for name, v := range versions {
		t.Run(name, func(t *testing.T) { eachSender(t, func(t *testing.T, send SendMode) { overTLS(t, send, v) }) })
	}
}

func overTLS(t *testing.T, send SendMode, version uint16) {
	g := guard(t, handshake.Config{}, Config{Send: send})
	cfg := g.client()
	cfg.MaxVersion = version
	c := g.dial(cfg)
	if s := c.Conn.(*tls.Conn).ConnectionState(); s.Version != version || s.NegotiatedProtocol != wire.ALPN {
		t.Fatalf("version %x, protocol %q", s.Version, s.NegotiatedProtocol)
	}
	c.hello(&wirev1.Hello{ClientId: "ann"})
	g.mesh.Append("room/1", "old")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	g.mesh.Send("room/1", "hi")
	if m := c.message(); m.GetSeq() != 2 || string(m.GetPayload()) != "hi" {
		t.Fatalf("Message %v", m)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 2}}})
	eventually(t, "ACKed", func() bool { s := g.Stats(); return s.Acks == 1 && s.Unacked == 0 })
	plain := dial(t, g.Loop) // the port is for both
	plain.hello(&wirev1.Hello{})
	_ = plain.Close()
	_ = c.Close()
	g.closed(wirev1.Code_CODE_OK, 2)
	if s := g.pool.Stats(); s.Full != 1 || s.Resumed+s.Failed+s.GaveWay+s.Refused != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestTLSIsResumed(t *testing.T) {
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			cfg := g.client()
			cfg.MaxVersion, cfg.ClientSessionCache = v, tls.NewLRUClientSessionCache(1)
			for i := range 3 {
				c := g.dial(cfg)
				c.hello(&wirev1.Hello{}) // reads the ticket of TLS 1.3
				if resumed := c.Conn.(*tls.Conn).ConnectionState().DidResume; resumed != (i > 0) {
					t.Fatalf("connection %d: resumed is %v", i, resumed)
				}
				_ = c.Close()
			}
			g.closed(wirev1.Code_CODE_OK, 3)
			if s := g.pool.Stats(); s.Full != 1 || s.Resumed != 2 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestRefusalOverTLS(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	c := g.dial(g.client())
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 9})
	// Behind the Error there is a close_notify: without it the client would be told of an
	// unexpected end.
	if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_UNSUPPORTED {
		t.Fatalf("got %v", e)
	}
	_ = c.Close()
	g.closed(wirev1.Code_CODE_UNSUPPORTED, 1)
}

func TestTLSWhereThereIsNone(t *testing.T) {
	l, _ := run(t, Limits{})
	if _, err := (&tls.Dialer{}).DialContext(t.Context(), "tcp", l.Addr()); err == nil {
		t.Fatal("it shakes hands")
	}
	eventually(t, "counted", func() bool { return l.Stats().Closes[wirev1.Code_CODE_UNSUPPORTED] == 1 })
}

// A WebSocket that comes without TLS to where that is required is told so at its Hello, and who has
// TLS does not notice.
func TestPlainHTTPBesideTLS(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{Principals: principals.Config{TLSOnly: true}})
	old := g.dial(g.client())
	old.hello(&wirev1.Hello{})
	c := upgraded(t, dial(t, g.Loop).Conn)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_UNSUPPORTED {
		t.Fatalf("got %v", e)
	}
	eventually(t, "it is counted", func() bool { return g.Stats().Closes[wirev1.Code_CODE_UNSUPPORTED] == 1 })
	old.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	old.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}

func TestTLSOnly(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{Principals: principals.Config{TLSOnly: true, Redeem: func(ticket []byte, _ uint64) bool { return string(ticket) == "good" }}})
	g.dial(g.client()).hello(&wirev1.Hello{})
	dial(t, g.Loop).hello(&wirev1.Hello{ClientId: "router", Ticket: []byte("good")})
	c := dial(t, g.Loop)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_UNSUPPORTED {
		t.Fatalf("got %v", e)
	}
}

// Where tiers have TLS a ticket is good with that alone, whoever has it, and is not used up
// without.
func TestTicketsByTLS(t *testing.T) {
	left := 1
	g := guard(t, handshake.Config{Tier: "localhost"}, Config{Principals: principals.Config{TicketsByTLS: true, Redeem: func([]byte, uint64) bool {
		left--
		return left == 0
	}}})
	others := g.client()
	// #nosec G402 -- a test: the name is none of the certificate
	others.ServerName, others.InsecureSkipVerify = "clients.example", true
	for _, c := range []*client{dial(t, g.Loop), g.dial(others)} {
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Ticket: []byte("good")})
		if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Fatalf("got %v", e)
		}
	}
	dial(t, g.Loop).hello(&wirev1.Hello{})
	g.dial(g.client()).hello(&wirev1.Hello{ClientId: "router", Ticket: []byte("good")})
}

func (g *guarded) drain() {
	g.Post(exchange.Drain{DeadlineMS: uint32(patience.Milliseconds()), Done: func() {}})
}
