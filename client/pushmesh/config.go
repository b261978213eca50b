package pushmesh

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"google.golang.org/grpc/resolver"
)

// SubscriberConfig of NewSubscriber. Only Addrs is required.
type SubscriberConfig struct {
	// Addrs of edges, host:port. One is picked at random; the others are tried, in random order,
	// when it fails. A name counts as many times as it has addresses, which are looked up again for
	// every round; with Dial it is handed to that as it is.
	Addrs []string
	// ClientID, at most 64 bytes; empty: the edge makes one.
	ClientID string
	// Session names a durable session, for subscriptions FromSession. It needs a ClientID, whose
	// session it is, or a Token.
	Session string
	// SessionTTL is how long the session lives without a connection, in whole seconds, rounded up;
	// 0: the mesh's default.
	SessionTTL time.Duration
	// Token proves who this is; it is called before every connection, within DialTimeout, and its
	// error counts as an attempt that failed, but for ErrNoToken, which ends the subscriber. After
	// TOKEN_EXPIRED it is called again: a Hello that is refused so twice in a row ends the
	// subscriber, and UNAUTHENTICATED does at once.
	Token func(context.Context) (string, error)
	// ReceiveWindow is the most un-ACKed messages on the connection; 0: 256.
	ReceiveWindow int
	// Heartbeat wished for; 0: the edge's default. Through a router it is the router's.
	Heartbeat time.Duration
	// Agent names the program to the mesh's operators.
	Agent string
	// Profile and ProfileVector are what messages are ranked for (WithRankTopK), 64 features and
	// 512 dimensions at most. Together with all else that a connection begins with they have 4 KiB.
	// What SessionService.SetProfile says instead holds until the connection ends.
	Profile       map[string]float64
	ProfileVector []float32
	// AckDelay is how long an ACK may wait for others to share a frame with; 0: 2 ms.
	AckDelay time.Duration
	// MinBackoff and MaxBackoff bound the wait between rounds over Addrs; 0: 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds a dial with its handshake; 0: 5 s.
	DialTimeout time.Duration
	// TLS of the connections, over whatever Dial returns; nil: none. An empty ServerName is the
	// host that Addrs, or an edge that goes away, names; empty NextProtos are the protocol's
	// (http/1.1 with WebSocket), and nil RootCAs the system's.
	TLS *tls.Config
	// WebSocket has the connection be a WebSocket, for networks that let nothing else through. It
	// takes a little more of an edge than a connection without.
	WebSocket bool
	// Dial replaces the plain TCP dialler.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Inline runs handlers on the goroutine that reads the connection: half the goroutines and no
	// copy of a message. A handler must then neither block nor wait for anything that comes over
	// the same connection (Publish, Unsubscribe): such a call is an error.
	Inline bool
	// OnGap is told of messages that will not come, and of positions that were lost. It is called
	// on the goroutine of handlers or of the reader and must not block.
	OnGap func(Gap)
	// Logger is told of connections, failed attempts, refusals, gaps and errors of handlers; nil:
	// nobody is.
	Logger *slog.Logger
	// OnConnect is called after every Welcome, OnDisconnect after every end of a connection, and
	// OnConnectFailed after every attempt to connect that failed, which is then tried again. They
	// must not block.
	OnConnect       func(Connection)
	OnDisconnect    func(error)
	OnConnectFailed func(error)

	lookup reconnect.Lookup
}

// Connection says what an edge answered to Hello.
type Connection struct {
	ID       uint64
	Edge     string
	ClientID string
	User     string
	// Resumed is true where the session existed before.
	Resumed  bool
	Features []string
}

// Gap names messages of a subscription that a handler will not see.
type Gap struct {
	Filter string
	// Topic is empty where a whole subscription with wildcards is concerned.
	Topic string
	// Epoch that holds now.
	Epoch uint64
	// From and To are the seqs, inclusive, where they are known (0, 0: they are not).
	From, To uint64
	// Missed is how many can no longer be had, as far as the mesh knows.
	Missed uint64
	// Code says why. UNSUPPORTED: the topic is ephemeral, so that there is nothing to begin with,
	// to go on from or to ACK; the subscription gets what is published while it is connected.
	Code Code
}

func (c *SubscriberConfig) setDefaults() error {
	if len(c.Addrs) == 0 {
		return misconfigured("SubscriberConfig.Addrs", "is empty: name edges, like 127.0.0.1:7400")
	}
	if c.Dial == nil {
		for _, addr := range c.Addrs {
			if err := checkAddr("SubscriberConfig.Addrs", addr, "127.0.0.1:7400"); err != nil {
				return err
			}
		}
	}
	if len(c.ClientID) > maxClientID {
		return misconfigured("SubscriberConfig.ClientID", "has %d bytes, at most %d", len(c.ClientID), maxClientID)
	}
	if c.ReceiveWindow < 0 || c.ReceiveWindow > 1<<20 {
		return misconfigured("SubscriberConfig.ReceiveWindow", "is %d, it must be 0 to 1,048,576", c.ReceiveWindow)
	}
	if c.SessionTTL < 0 || c.SessionTTL > math.MaxUint32*time.Second {
		return misconfigured("SubscriberConfig.SessionTTL", "is %v, it must be 0 (the mesh's default) to 2^32-1 seconds", c.SessionTTL)
	}
	if c.Heartbeat < 0 || c.Heartbeat > math.MaxUint32*time.Millisecond {
		return misconfigured("SubscriberConfig.Heartbeat", "is %v, it must be 0 (the edge's default) to 2^32-1 milliseconds", c.Heartbeat)
	}
	if c.Session != "" && c.ClientID == "" && c.Token == nil {
		return misconfigured("SubscriberConfig.Session", "needs ClientID: a session belongs to its client, and an edge makes up another ClientID for every process")
	}
	if !utf8.ValidString(c.ClientID) || !utf8.ValidString(c.Session) || !utf8.ValidString(c.Agent) {
		return misconfigured("SubscriberConfig.ClientID", "and Session and Agent must be UTF-8")
	}
	setDefault(&c.ReceiveWindow, 256)
	setDefault(&c.AckDelay, 2*time.Millisecond)
	setDefault(&c.MinBackoff, 100*time.Millisecond)
	setDefault(&c.MaxBackoff, 10*time.Second)
	c.MaxBackoff = max(c.MaxBackoff, c.MinBackoff)
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.Agent, "pushmesh-go")
	setDefault(&c.Logger, silent)
	c.TLS = tlsFor(c.TLS, c.WebSocket)
	if c.Dial == nil {
		setDefaultLookup(&c.lookup)
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	return nil
}

// silent is the Logger of those that have none.
var silent = slog.New(slog.DiscardHandler)

// maxClientID is the most bytes of a ClientID.
const maxClientID = 64

// checkAddr refuses what can't be dialled: it wants HOST:PORT.
func checkAddr(field, addr, like string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port) // a number up to 65535, or the name of one
	}
	if err != nil || port == "" || strings.Contains(addr, "://") {
		return misconfigured(field, "has %q, which must be host:port, like %s", addr, like)
	}
	return nil
}

// checkTarget is checkAddr for gRPC, which takes "unix:…", "dns:///…" and the like too.
func checkTarget(field, addr string) error {
	if scheme, _, found := strings.Cut(addr, ":"); found && resolver.Get(scheme) != nil {
		return nil
	}
	return checkAddr(field, addr, "127.0.0.1:7401")
}

// setDefaultLookup leaves a test's own.
func setDefaultLookup(l *reconnect.Lookup) {
	if *l == nil {
		*l = reconnect.Resolve
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
