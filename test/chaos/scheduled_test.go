package chaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// fired is when a scheduled message came, by its number.
type fired struct {
	mu    sync.Mutex
	at    map[uint64]time.Time
	twice []uint64
}

func (f *fired) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at)
}

// take returns what came, and forgets it.
func (f *fired) take() map[uint64]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.at
	f.at = map[uint64]time.Time{}
	return all
}

// listen takes messages until the test ends; the payload is the message's number.
func (f *fired) listen(t *testing.T, c *wireclient.Client) {
	for {
		ft, body, err := c.Next(time.Hour)
		if err != nil {
			return // the test is over
		}
		if ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
			continue
		}
		var m wirev1.Message
		if err := proto.Unmarshal(body, &m); err != nil || len(m.GetPayload()) != 8 {
			t.Errorf("message: %v", err)
			return
		}
		n := binary.BigEndian.Uint64(m.GetPayload())
		f.mu.Lock()
		if _, again := f.at[n]; again {
			f.twice = append(f.twice, n)
		}
		f.at[n] = time.Now()
		f.mu.Unlock()
	}
}

const (
	scheduledMessages = 10_000
	scheduledTopics   = 64
	// onTime is the promise.
	onTime = 100 * time.Millisecond
	// overloaded is what the test allows, which runs beside others: the figures it prints are to be
	// held against onTime.
	overloaded = time.Second
	// takeover is what a store's SIGKILL may cost its shards.
	takeover = 3 * time.Second
)

// schedule publishes messages, all due within the second after due, over one stream. Those of
// another round have other numbers.
func schedule(t *testing.T, api pushmeshv1.PublishServiceClient, round int, due time.Time) (dues map[uint64]time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	stream, err := api.PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dues = map[uint64]time.Time{}
	for first := 0; first < scheduledMessages; first += 1000 {
		req := &pushmeshv1.PublishStreamRequest{}
		for n := first; n < first+1000; n++ {
			id, at := uint64(round*scheduledMessages+n), due.Add(time.Duration(n%1000)*time.Millisecond)
			dues[id] = at
			req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: id + 1, Message: &pushmeshv1.PublishRequest{
				Topic: fmt.Sprintf("chaos/later-%d", n%scheduledTopics), Payload: binary.BigEndian.AppendUint64(nil, id), DeliverAt: timestamppb.New(at),
			}})
		}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		for answered := 0; answered < 1000; {
			resp, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range resp.GetResults() {
				if r.GetCode() != wirev1.Code_CODE_OK || !r.GetResponse().GetScheduled() && time.Now().Before(due) {
					t.Fatalf("not scheduled: %v", r)
				}
				answered++
			}
		}
	}
	return dues
}

// 10,000 messages fall due in one second, and in the middle of it one of two stores is killed: each
// comes once, on time but for the takeover. Where the machine was too busy for times to mean
// anything it is done again, and the other store is killed.
func TestScheduledMessagesSurviveAStore(t *testing.T) {
	m := begin(t, procmesh.Options{Stores: 2, DB: pgtest.URL(t)})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "chaos/+"})
	got := &fired{at: map[uint64]time.Time{}}
	go got.listen(t, c) // ends with the connection, which ends with the test

	const most = 6
	lead := 15 * time.Second
	for round := range most {
		due := time.Now().Add(lead).Truncate(time.Second)
		dues := schedule(t, pushmeshv1.NewPublishServiceClient(conn), round, due)
		scheduled := time.Until(due) >= 2*time.Second
		kill := due.Add(500 * time.Millisecond)
		<-time.After(time.Until(kill)) // the second in which they fall due is the test's own clock
		victim := m.Stores[round%2]
		victim.Kill()
		procmesh.Await(t, "every message", func() bool { return got.count() == scheduledMessages })
		late := judgeTimes(t, got.take(), dues, kill)
		got.mu.Lock()
		if len(got.twice) > 0 {
			t.Errorf("%d messages came twice, like %d", len(got.twice), got.twice[0])
		}
		got.mu.Unlock()
		if t.Failed() || scheduled && late == "" {
			return
		}
		t.Logf("round %d: scheduled in time: %v; %s", round, scheduled, late)
		lead = min(2*lead, time.Minute)
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		m.WaitReady(t)
	}
	t.Errorf("not once in %d rounds did messages come in time", most)
}

// judgeTimes of what came says what was late; what came early is an error.
func judgeTimes(t *testing.T, came, dues map[uint64]time.Time, kill time.Time) (late string) {
	t.Helper()
	var before, after []time.Duration // of those that came before the kill, and from then on
	early, later := 0, 0
	for n, at := range came {
		due, known := dues[n]
		if !known {
			t.Fatalf("message %d is not of this round", n)
		}
		lag := at.Sub(due)
		if lag < -time.Millisecond {
			early++
		}
		if at.Before(kill) {
			before = append(before, lag)
			continue
		}
		if lag > onTime {
			later++
		}
		after = append(after, lag)
	}
	slices.Sort(before)
	slices.Sort(after)
	t.Logf("before the kill %d came: p50 %s, p99 %s, max %s; after it %d: p50 %s, max %s, %d of them later than %s",
		len(before), at(before, 0.5), at(before, 0.99), at(before, 1), len(after), at(after, 0.5), at(after, 1), later, onTime)
	if early > 0 {
		t.Errorf("%d came before their time", early)
	}
	if len(before) < scheduledMessages/10 || at(before, 0.99) > overloaded {
		late = fmt.Sprintf("before the kill %d came, p99 %s late; want %s", len(before), at(before, 0.99), overloaded)
	}
	if at(after, 1) > takeover+time.Second {
		late += fmt.Sprintf("; the latest came after %s; a takeover takes %s", at(after, 1), takeover)
	}
	return late
}

func at(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
