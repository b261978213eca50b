package subscribe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	// askTimeout is how long an edge has to give a ticket, dialTimeout how long it has to take the
	// connection.
	askTimeout  = 500 * time.Millisecond
	dialTimeout = 5 * time.Second
	// tries of one stream before it is refused.
	tries = 4
	// steady is how long a connection must have lived for the next move to begin at once.
	steady = 2 * time.Second
	// moveWithin is how long a stream that moves may be without an edge.
	moveWithin = 30 * time.Second
	minPause   = 50 * time.Millisecond
	maxPause   = time.Second
)

// order puts edges into the order in which they are tried: at random, but of the first two the one
// with fewer connections goes first. So load is spread although counts are a second old. Those that
// are about to stop are left out; those that send clients away are the last resort.
func order(homes []interest.Home, sends func(interest.Edge) bool) []interest.Home {
	var out, last []interest.Home
	for _, h := range homes {
		switch {
		case h.Draining:
		case sends(h.Edge):
			last = append(last, h)
		default:
			out = append(out, h)
		}
	}
	out = append(spread(out), spread(last)...)
	return out[:min(len(out), tries)]
}

func spread(homes []interest.Home) []interest.Home {
	rand.Shuffle(len(homes), func(i, j int) { homes[i], homes[j] = homes[j], homes[i] })
	if len(homes) > 1 && homes[1].Connections < homes[0].Connections {
		homes[0], homes[1] = homes[1], homes[0]
	}
	return homes
}

// connect finds an edge for the stream: one round over the edges for a new one; a stream that moves
// is patient.
func (s *stream) connect(ctx context.Context) (*link, error) {
	moving := s.moved != nil
	until := time.Now().Add(moveWithin)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no edge is known that takes subscriptions")
		for _, home := range order(s.service.cfg.Edges.Homes(), s.service.senders.now(time.Now())) {
			l, failed := s.open(ctx, home.ID)
			if failed == nil {
				l.edge = home.Edge
				return l, nil
			}
			if err = code.From(failed); !elsewhere(err.Code) || ctx.Err() != nil {
				return nil, err
			}
		}
		if err.RetryAfter = max(err.RetryAfter, retrySoon); !moving || time.Now().After(until) {
			return nil, err
		}
		// Spread: an edge's end moves many streams.
		if !wait(ctx, pause/2+rand.N(pause/2)) {
			return nil, ctx.Err()
		}
	}
}

// elsewhere reports whether another edge may take the stream that this one did not.
func elsewhere(c wirev1.Code) bool { return code.Retryable(c) }

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// open asks an edge for a ticket and connects with it.
func (s *stream) open(ctx context.Context, edge string) (*link, error) {
	reply, err := s.ticket(ctx, edge)
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "edge "+edge+" does not answer: "+err.Error())
	}
	if len(reply.GetTicket()) == 0 {
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "edge "+edge+" takes no new subscribers now")
	}
	conn, err := s.service.dial(ctx, reply)
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "edge "+edge+" can't be reached: "+err.Error())
	}
	hello := proto.CloneOf(s.hello)
	hello.Ticket = append(reply.GetTicket(), s.service.cfg.RouterID...)
	l := newLink(conn, s.service.cfg.Silent)
	stop := context.AfterFunc(ctx, l.close)
	if err = l.handshake(hello); !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		if code.Of(err) == wirev1.Code_CODE_UNAUTHENTICATED {
			// the ticket's time was over, say: nothing that the backend can help
			err = code.New(wirev1.Code_CODE_UNAVAILABLE, err.Error())
		}
		return nil, err
	}
	return l, nil
}

// dial connects with an edge, with TLS where both have certificates between tiers.
func (s *Service) dial(ctx context.Context, at *meshv1.EdgeReply) (net.Conn, error) {
	id := s.cfg.Identity
	if id.Strict() && !at.GetTls() {
		return nil, errors.New("it has no certificate between tiers (--mesh-cert), and this router connects without TLS to no tier (--plain-tiers)")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.GetAddress())
	if err != nil || id == nil || !at.GetTls() {
		return conn, err
	}
	secure, err := id.Knock(ctx, conn, tierauth.Edge, wire.ALPN)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

func (s *stream) ticket(ctx context.Context, edge string) (*meshv1.EdgeReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	data, err := proto.Marshal(&meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Ticket{Ticket: &meshv1.IssueTicket{RouterId: s.service.cfg.RouterID}}})
	if err != nil {
		return nil, err
	}
	answer, err := s.service.cfg.Via.Request(ctx, bus.EdgeRequest(edge), data)
	if err != nil {
		return nil, err
	}
	reply := &meshv1.EdgeReply{}
	return reply, proto.Unmarshal(answer, reply)
}
