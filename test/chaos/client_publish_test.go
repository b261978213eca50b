package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// pen is a client that publishes durable messages with keys, so many unanswered, to one topic.
type pen struct {
	t     *testing.T
	c     *wireclient.Client
	topic string

	sent, answered uint32
	seqs           map[uint32]uint64 // of messages that were answered OK
	refused        []*wirev1.Error
	began          map[uint32]time.Time
	longest        time.Duration // until an answer
}

const unanswered = 16

func newPen(t *testing.T, m *procmesh.Mesh, topic string) *pen {
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: topic})
	return &pen{t: t, c: c, topic: topic, seqs: map[uint32]uint64{}, began: map[uint32]time.Time{}}
}

// write publishes n messages more and waits for all answers.
func (p *pen) write(n uint32) error {
	for end := p.sent + n; p.answered < end; {
		for p.sent < end && p.sent < p.answered+unanswered {
			p.sent++
			p.began[p.sent] = time.Now()
			p.c.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{
				Id: p.sent, Topic: p.topic, Payload: fmt.Append(nil, p.sent), DedupeKey: fmt.Sprint(p.sent),
			})
		}
		ft, body, err := p.c.Next(wireclient.Patience)
		if err != nil {
			return err
		}
		m, err := wireclient.Frame(ft, body)
		if err != nil {
			return err
		}
		p.answered++
		switch m := m.(type) {
		case *wirev1.Published:
			p.seqs[m.GetId()] = m.GetSeq()
			p.longest = max(p.longest, time.Since(p.began[m.GetId()]))
		case *wirev1.Error:
			p.refused = append(p.refused, m)
		default:
			return fmt.Errorf("got %v", m)
		}
	}
	return nil
}

// judge reads the log: what was answered OK is there once, where the answer said, and in the order
// in which it was sent.
func (p *pen) judge(m *procmesh.Mesh) {
	p.t.Helper()
	c, _ := wireclient.Connect(p.t, m.EdgeAddrs[0], &wirev1.Hello{})
	head := c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: p.topic, Start: wirev1.Start_START_EARLIEST}).GetHead()
	seen, last := map[uint32]uint64{}, uint32(0)
	for seq := uint64(0); seq < head; {
		got := c.Message()
		seq = got.GetSeq()
		var n uint32
		if _, err := fmt.Sscan(string(got.GetPayload()), &n); err != nil {
			p.t.Fatal(err)
		}
		if seen[n] != 0 {
			p.t.Errorf("%s: message %d is in the log twice, at %d and %d", p.topic, n, seen[n], seq)
		}
		seen[n] = seq
		if p.seqs[n] == 0 {
			continue
		}
		if n < last || p.seqs[n] != seq {
			p.t.Errorf("%s: message %d after %d at %d, answered %d", p.topic, n, last, seq, p.seqs[n])
		}
		last = n
	}
	for n, seq := range p.seqs {
		if seen[n] == 0 {
			p.t.Errorf("%s: message %d, answered with seq %d, is not in the log", p.topic, n, seq)
		}
	}
	c.Close()
}

// A router is killed while clients publish durable messages with keys: the edge asks the other
// router, and clients get their answers without having tried again, each message once and in order,
// within seconds. A machine that stood still may cost a refusal: one round of several must be
// without.
func TestClientsPublishOnWhenARouterIsKilled(t *testing.T) {
	m := procmesh.Start(t, procmesh.Options{Routers: 2})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	policy := &pushmeshv1.Policy{Durable: true, ClientPublish: true}
	if _, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "pen", Policy: policy},
	}); err != nil {
		t.Fatal(err)
	}
	probes := 0
	procmesh.Await(t, "clients may publish", func() bool {
		probes++
		p := newPen(t, m, fmt.Sprint("pen/probe/", probes))
		defer p.c.Close()
		return p.write(1) == nil && len(p.refused) == 0
	})
	for round := range 5 {
		if penRound(t, m, round) {
			return
		}
		if t.Failed() {
			return
		}
	}
	t.Error("clients were refused in every round, or waited for long")
}

func penRound(t *testing.T, m *procmesh.Mesh, round int) (whole bool) {
	const clients, first, rest = 6, 50, 200
	var pens []*pen
	for i := range clients { // about half of which have the router that is killed
		pens = append(pens, newPen(t, m, fmt.Sprintf("pen/%d/%d", round, i)))
	}
	var halfway, all sync.WaitGroup
	halfway.Add(clients)
	for _, p := range pens {
		all.Go(func() {
			err := p.write(first)
			halfway.Done()
			if err == nil {
				err = p.write(rest)
			}
			if err != nil {
				t.Errorf("%s: %v", p.topic, err)
			}
		})
	}
	halfway.Wait()
	victim := m.Routers[round%2]
	victim.Kill()
	all.Wait()
	whole = true
	for _, p := range pens {
		p.judge(m)
		t.Logf("%s: %d refused, the longest answer took %v", p.topic, len(p.refused), p.longest)
		whole = whole && len(p.refused) == 0 && p.longest < 5*time.Second
		p.c.Close()
	}
	if whole {
		return true
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	m.WaitReady(t)
	return false
}
