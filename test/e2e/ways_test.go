package e2e

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

const (
	fleeting = "cursor/ways" // ephemeral
	lasting  = "room/ways"   // durable
)

// follower stays subscribed to both topics and judges the order of what comes.
type follower struct {
	client *wireclient.Client
	ack    bool
	epoch  uint64
	// fleetingHigh is the last number of the ephemeral topic, lastingHigh the last seq of the
	// durable one, got how many ephemeral ones came.
	fleetingHigh, lastingHigh, got atomic.Uint64
	wrong                          atomic.Pointer[string]
}

func follow(t *testing.T, addr string, ack bool) *follower {
	t.Helper()
	f := &follower{ack: ack}
	f.client, _ = wireclient.Connect(t, addr, &wirev1.Hello{})
	f.client.Subscribe(&wirev1.Subscribe{Id: 1, Filter: fleeting})
	f.epoch = f.client.Subscribe(&wirev1.Subscribe{Id: 2, Filter: lasting, Ack: ack}).GetEpoch()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for f.next() {
		}
	}()
	t.Cleanup(func() { f.client.Close(); <-ended })
	return f
}

// next takes a frame; false at the end of the connection.
func (f *follower) next() bool {
	ft, body, err := f.client.Next(2 * wireclient.Patience)
	if err != nil || ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
		return err == nil
	}
	frame, err := wireclient.Frame(ft, body)
	if err != nil {
		f.fail("%v", err)
		return false
	}
	m := frame.(*wirev1.Message)
	number := binary.BigEndian.Uint64(m.GetPayload())
	if m.GetTopic() == fleeting {
		if high := f.fleetingHigh.Swap(number); number <= high {
			f.fail("ephemeral: %d after %d", number, high)
		}
		f.got.Add(1)
		return true
	}
	switch high := f.lastingHigh.Load(); {
	case m.GetSeq() == high+1 && number == m.GetSeq():
		f.lastingHigh.Store(m.GetSeq())
	case m.GetSeq() > high || m.GetAttempt() == 0:
		f.fail("durable: seq %d (message %d, attempt %d) after %d", m.GetSeq(), number, m.GetAttempt(), high)
	}
	if f.ack {
		f.client.Ack(m, f.epoch)
	}
	return true
}

func (f *follower) fail(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	f.wrong.CompareAndSwap(nil, &s)
}

// numbered publishes 1, 2, 3, … to both topics on one stream, until stop; then every message is
// answered.
func numbered(t *testing.T, router string) (stop func() (published uint64)) {
	t.Helper()
	const window = 64
	conn, err := grpc.NewClient(router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*wireclient.Patience)
	t.Cleanup(cancel)
	stream, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	room, stopped, answered := make(chan struct{}, 2*window), make(chan struct{}), make(chan struct{})
	var sent uint64
	go func() {
		defer func() { _ = stream.CloseSend() }()
		for {
			for range 2 {
				room <- struct{}{}
			}
			select {
			case <-stopped:
				return
			case <-answered:
				return
			default:
			}
			sent++
			payload := binary.BigEndian.AppendUint64(nil, sent)
			var both []*pushmeshv1.PublishStreamRequest_Item
			for i, topic := range []string{fleeting, lasting} {
				both = append(both, &pushmeshv1.PublishStreamRequest_Item{Ref: 2*sent + uint64(i), Message: &pushmeshv1.PublishRequest{Topic: topic, Payload: payload}})
			}
			if stream.Send(&pushmeshv1.PublishStreamRequest{Batch: both}) != nil { // Recv says why
				return
			}
		}
	}()
	go func() {
		defer close(answered)
		for {
			res, err := stream.Recv()
			if err != nil {
				if err.Error() != "EOF" {
					t.Errorf("publish: %v", err)
				}
				return
			}
			for _, r := range res.GetResults() {
				if r.GetCode() != 0 {
					t.Errorf("publish %d: %v %s", r.GetRef()/2, r.GetCode(), r.GetError())
				}
				<-room
			}
		}
	}()
	return func() uint64 {
		close(stopped)
		<-answered
		return sent
	}
}

// broadcastTopics is how many topics the router sends once for all edges, and broadcasts how many
// batches went out so.
func broadcastTopics(t *testing.T, router *procmesh.Process) (topics, broadcasts float64) {
	t.Helper()
	resp, err := http.Get("http://" + router.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "pushmesh_router_broadcast_topics":
			_, err = fmt.Sscan(value, &topics)
		case "pushmesh_router_broadcasts_total":
			_, err = fmt.Sscan(value, &broadcasts)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return topics, broadcasts
}

// Subscribers that stay get one producer's messages in order while subscribers on other edges come
// and go, so that both topics change again and again between being sent once for all edges and once
// for each edge: ephemeral ones without any going back, durable ones all.
func TestOrderIsKeptWhileWaysChange(t *testing.T) {
	t.Parallel()
	const changes = 3
	m := procmesh.Start(t, procmesh.Options{Edges: 4})
	var stay []*follower
	for i := range 4 {
		stay = append(stay, follow(t, m.EdgeAddrs[0], i%2 == 0))
	}
	stop := numbered(t, m.RouterAddrs[0])
	_, before := broadcastTopics(t, m.Routers[0])
	for range changes {
		var guests []*wireclient.Client
		for _, addr := range m.EdgeAddrs[1:] {
			c, _ := wireclient.Connect(t, addr, &wirev1.Hello{})
			for i, topic := range []string{fleeting, lasting} {
				c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: topic})
			}
			guests = append(guests, c)
		}
		var sent float64
		procmesh.Await(t, "both topics are broadcast", func() bool {
			topics, broadcasts := broadcastTopics(t, m.Routers[0])
			sent = broadcasts
			return topics == 2 && broadcasts > before
		})
		before = sent
		for _, c := range guests {
			c.Close()
		}
		procmesh.Await(t, "both topics are sent to each edge", func() bool {
			topics, _ := broadcastTopics(t, m.Routers[0])
			return topics == 0
		})
	}
	published := stop()
	for i, f := range stay {
		procmesh.Await(t, "everything durable has come", func() bool { return f.lastingHigh.Load() >= published || f.wrong.Load() != nil })
		if wrong := f.wrong.Load(); wrong != nil {
			t.Errorf("subscriber %d: %s", i, *wrong)
		}
		if f.got.Load() == 0 {
			t.Errorf("subscriber %d got nothing ephemeral", i)
		}
		t.Logf("subscriber %d: %d of %d ephemeral messages, %d durable ones", i, f.got.Load(), published, f.lastingHigh.Load())
	}
}
