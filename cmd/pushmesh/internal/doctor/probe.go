package doctor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// late is how long a probe may take before it is worth a word.
const late = time.Second

// subscriber is one connection to an edge.
type subscriber struct {
	conn net.Conn
	buf  []byte
}

// fault is an Error of an edge.
type fault struct {
	code wirev1.Code
	text string
}

func (f *fault) Error() string { return code.Name(f.code) + ": " + f.text }

// aboutToken reports whether an edge has refused the token, or that there is none.
func aboutToken(err error) bool {
	var f *fault
	return errors.As(err, &f) && (f.code == wirev1.Code_CODE_UNAUTHENTICATED || f.code == wirev1.Code_CODE_TOKEN_EXPIRED)
}

// tokens returns a token for each connection; nil: there is none.
type tokens func(context.Context) (string, error)

// connect says Hello and waits for Welcome.
func (ask tokens) connect(ctx context.Context, addr string) (*subscriber, error) {
	if addr == "" {
		return nil, errors.New("its address for subscribers is not known")
	}
	hello := &wirev1.Hello{Version: wire.Version, Agent: "pushmesh-doctor"}
	if ask != nil {
		var err error
		if hello.Token, err = ask(ctx); err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &subscriber{conn: conn}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	if err == nil {
		err = s.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	}
	if err == nil {
		err = s.await(wirev1.FrameType_FRAME_TYPE_WELCOME)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return s, nil
}

func (ask tokens) handshake(ctx context.Context, addr string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := ask.connect(ctx, addr)
	if err != nil {
		return err
	}
	return s.conn.Close()
}

func (s *subscriber) send(t wirev1.FrameType, m proto.Message) error {
	b, err := wire.Append(nil, t, m)
	if err == nil {
		_, err = s.conn.Write(b)
	}
	return err
}

// next is the next frame; an Error is one.
func (s *subscriber) next() (wirev1.FrameType, []byte, error) {
	t, body, err := wire.Read(s.conn, s.buf, wire.MaxBody)
	if err != nil {
		return 0, nil, err
	}
	if t == wirev1.FrameType_FRAME_TYPE_ERROR {
		e := &wirev1.Error{}
		if err := proto.Unmarshal(body, e); err != nil {
			return 0, nil, err
		}
		return 0, nil, &fault{e.GetCode(), e.GetMessage()}
	}
	return t, body, nil
}

func (s *subscriber) await(want wirev1.FrameType) error {
	for {
		t, _, err := s.next()
		if err != nil || t == want {
			return err
		}
	}
}

// kinds of topics that are probed: those of the policies that come with a mesh.
var kinds = []string{"durable", "ephemeral"}

var articled = map[string]string{"durable": "a durable", "ephemeral": "an ephemeral"}

// prober publishes through routers and listens at edges.
type prober struct {
	topics   map[string]string // by kind
	token    tokens
	dial     []grpc.DialOption // routers
	patience time.Duration     // with an answer
	arrive   time.Duration     // of a message

	mu   sync.Mutex
	came map[string]time.Time // by edge and payload
	more chan struct{}
}

// probe sends messages of both kinds through every router and waits for each at every edge.
func probe(ctx context.Context, r *Report, all []*seen, c Config) {
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	name := "pushmesh-doctor-" + hex.EncodeToString(id)
	p := &prober{
		topics: map[string]string{"durable": "room/" + name, "ephemeral": name},
		dial:   c.dial(pushmeshv1.Tier_TIER_ROUTER),
		token:  c.Token, patience: c.Patience, arrive: c.Arrive, came: map[string]time.Time{}, more: make(chan struct{}, 1),
	}
	var edges, routers []*seen
	for _, o := range all {
		switch {
		case o.direct != nil || o.node.GetProblem() != "":
		case o.node.GetTier() == pushmeshv1.Tier_TIER_EDGE:
			edges = append(edges, o)
		case o.node.GetTier() == pushmeshv1.Tier_TIER_ROUTER:
			routers = append(routers, o)
		}
	}
	for _, kind := range kinds {
		listening, stop := p.listenAt(ctx, r, edges, kind)
		for _, router := range routers {
			p.through(ctx, r, router, listening, kind)
		}
		stop()
	}
}

// needs says what messages of a kind need.
var needs = map[string]string{
	"durable":   "look at \"ready\" above: durable topics need a store and its database",
	"ephemeral": "look at \"ready\" above: ephemeral messages need NATS",
}

// listenAt subscribes at all edges together; those that refuse are told and left out.
func (p *prober) listenAt(ctx context.Context, r *Report, edges []*seen, kind string) (listening []*seen, stop func()) {
	stops, errs := make([]func(), len(edges)), make([]error, len(edges))
	var all sync.WaitGroup
	for i, edge := range edges {
		all.Go(func() { stops[i], errs[i] = p.listen(ctx, edge, kind) })
	}
	all.Wait()
	for i, edge := range edges {
		if errs[i] != nil {
			r.add(Fail, "probe", edge.name(), fmt.Sprintf("a subscription to %s topic is not taken: %s", articled[kind], plain(errs[i])), needs[kind])
			continue
		}
		listening = append(listening, edge)
	}
	return listening, func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}
}

// listen subscribes at an edge, and notes what comes.
func (p *prober) listen(ctx context.Context, edge *seen, kind string) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	s, err := p.token.connect(ctx, edge.node.GetSubscriberAddress())
	if err != nil {
		return nil, err
	}
	err = s.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: p.topics[kind]})
	if err == nil {
		err = s.await(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED)
	}
	if err == nil {
		err = s.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			t, body, err := s.next()
			if err != nil {
				return
			}
			m := &wirev1.Message{}
			if t == wirev1.FrameType_FRAME_TYPE_MESSAGE && proto.Unmarshal(body, m) == nil {
				p.note(edge, string(m.GetPayload()))
			}
		}
	}()
	return func() {
		_ = s.conn.Close()
		<-ended
	}, nil
}

func (p *prober) note(edge *seen, payload string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came[edge.name()+" "+payload] = time.Now()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// through publishes one message through a router and says when it came where.
func (p *prober) through(ctx context.Context, r *Report, router *seen, edges []*seen, kind string) {
	payload := router.name() + " " + kind
	subject := router.name()
	began := time.Now()
	err := withConn(router.node.GetGrpcAddress(), p.dial, func(conn *grpc.ClientConn) error {
		ctx, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		_, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{Topic: p.topics[kind], Payload: []byte(payload)})
		return err
	})
	if err != nil {
		r.add(Fail, "probe", subject, fmt.Sprintf("%s message is not taken: %s", articled[kind], plain(err)), needs[kind])
		return
	}
	answered := time.Since(began)
	deadline := time.NewTimer(p.arrive)
	defer deadline.Stop()
	for {
		missing, last := p.missing(edges, payload, began)
		if len(missing) == 0 {
			p.say(r, subject, kind, answered, last, len(edges))
			return
		}
		select {
		case <-p.more:
		case <-deadline.C:
			r.add(Fail, "probe", subject, fmt.Sprintf("%s message did not come within %s to %s", articled[kind], p.arrive, strings.Join(missing, ", ")),
				"router and edge do not reach each other over NATS: compare --nats and the servers' cluster routes, and pushmesh_edge_routers with the number of routers")
			return
		}
	}
}

func (p *prober) missing(edges []*seen, payload string, began time.Time) (missing []string, last time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range edges {
		at, ok := p.came[e.name()+" "+payload]
		if !ok {
			missing = append(missing, e.name())
			continue
		}
		last = max(last, at.Sub(began))
	}
	return missing, last
}

func (p *prober) say(r *Report, subject, kind string, answered, last time.Duration, edges int) {
	found := fmt.Sprintf("%s message: answered in %s, ", articled[kind], answered.Round(10*time.Microsecond))
	if edges == 0 {
		found += "but no edge listens"
	} else {
		found += fmt.Sprintf("at the last of %s after %s", some(edges, "edge"), last.Round(10*time.Microsecond))
	}
	if max(answered, last) > late {
		r.add(Warn, "probe", subject, found, "that is slow: look at pushmesh_store_commit_seconds, pushmesh_edge_loop_lag_seconds, and at the CPU of all tiers (pushmesh top)")
		return
	}
	r.ok("probe", subject, "%s", found)
}
