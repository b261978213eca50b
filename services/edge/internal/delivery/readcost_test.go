package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// missed has so many clients each subscribe to as many topics of their own, with a message each
// that they missed, and then one more with one such topic. It says how many milliseconds of virtual
// time pass until all of the clients, and the last one, have theirs, where reads are answered at
// once and --catchup-rate is 600.
func missed(t *testing.T, clients, topics int) (all, last int) {
	t.Helper()
	w := newWorld(t, Limits{ReplayPace: 600})
	var conns []*client
	for range clients + 1 {
		conns = append(conns, w.connect(&wirev1.Hello{}))
	}
	n, before := 0, w.h.Stats().Deliveries
	last = -1
	for i, c := range conns {
		if i == clients {
			topics = 1
		}
		for id := range topics {
			room := fmt.Sprintf("room/%d", n)
			w.mesh.Append(room, payloads(0, 1)...)
			c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(id + 1), Filter: room, Start: wirev1.Start_START_EARLIEST})
			n++
		}
	}
	for ms := range 200 {
		for range 4 {
			w.settle()
			for _, c := range conns[:clients] {
				c.take()
			}
			had := w.h.Stats().Deliveries
			if conns[clients].take(); last < 0 && w.h.Stats().Deliveries > had {
				last = ms
			}
		}
		if w.h.Stats().Deliveries-before >= uint64(n) && last >= 0 {
			return ms, last
		}
		w.now += int64(time.Millisecond)
		w.h.SetTime(w.now, wallStart)
	}
	t.Fatalf("%d of %d messages came in 200 ms", w.h.Stats().Deliveries-before, n)
	return 0, 0
}

func TestManyWithATopicEachCatchUpSoon(t *testing.T) {
	if ms, _ := missed(t, 600, 1); ms > 20 {
		t.Fatalf("it takes them %d ms", ms)
	}
}

// Beside connections with many topics each, but none with very many, who has missed one message
// waits for as long as their reads take.
func TestWhoMissedOneMessageWaitsForFewReads(t *testing.T) {
	if _, ms := missed(t, 10, 60); ms > 20 {
		t.Fatalf("it waits for %d ms", ms)
	}
}

// slowLog answers reads of logs one by one, as it is told to.
type slowLog struct {
	exchange.Mesh
	asked []func()
}

func (s *slowLog) Read(loop uint16, topic string, epoch, from, to uint64, maxBytes int) {
	s.asked = append(s.asked, func() { s.Mesh.Read(loop, topic, epoch, from, to, maxBytes) })
}

// Reads of logs wait in one line behind the loop. Who has very many positions has few of them there
// at a time, so that others don't wait behind all that it asks for; and it comes to its end.
func TestFewReadsAreUnderWayForThoseWithManyPositions(t *testing.T) {
	const topics, most = 1000, 200
	w := newWorld(t, Limits{})
	log := &slowLog{Mesh: w.h.cfg.Mesh}
	cfg := w.h.cfg
	cfg.Mesh = log
	w.h = newHub(t, cfg)
	w.pass(0)
	w.manyTopics(topics)
	w.mesh.Append("room/1", "x")
	many, one := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	many.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	w.settle()
	one.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
	w.settle()
	if n := len(log.asked); n < 2 || n > most {
		t.Fatalf("%d reads are before the neighbour's", n-1)
	}
	if w.h.Queued() {
		t.Fatal("the loop goes on though nobody may")
	}
	for len(log.asked) > 0 {
		next := log.asked[0]
		log.asked = log.asked[1:]
		next()
		w.settle()
		many.take()
		one.take()
		if len(log.asked) > most {
			t.Fatalf("%d reads are under way", len(log.asked))
		}
	}
	if n := w.h.Stats().Deliveries; n != topics+1 {
		t.Fatalf("%d of %d messages came", n, topics+1)
	}
}
