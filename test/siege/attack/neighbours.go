package attack

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func neighbours() []Attack {
	return []Attack{{
		Name: "nats", What: "a neighbour on NATS that listens for the mesh's subjects and sends garbage to each, what it heard again, and messages whose bodies are none", Metric: "pushmesh_edge_bad_frames_total",
		Run: garbageOnNATS,
	}}
}

// keptMost is how many messages the neighbour keeps to send again.
const keptMost = 64

// garbageOnNATS sends to every subject of a mesh that it hears: bytes of chance, what it
// heard once more or cut in half, and frames of routers with bodies that are no messages. It forges
// nothing that makes sense: who may publish on a mesh's subjects could be any of its tiers.
func garbageOnNATS(ctx context.Context, t *Target, c *Codes) error {
	nc, err := nats.Connect("nats://" + t.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	var mu sync.Mutex
	var heard []*nats.Msg
	sub, err := nc.Subscribe("pushmesh.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if m.Header.Get("by") == "neighbour" {
			return
		}
		if heard = append(heard, m); len(heard) > keptMost {
			heard[rand.IntN(keptMost)] = m
			heard = heard[:keptMost]
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for ctx.Err() == nil {
		mu.Lock()
		var m *nats.Msg
		if len(heard) > 0 {
			m = heard[rand.IntN(len(heard))]
		}
		mu.Unlock()
		if m == nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		kind, data := garble(m)
		out := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: data, Header: nats.Header{"by": {"neighbour"}}}
		if err := nc.PublishMsg(out); err != nil {
			return err
		}
		c.Note(kind)
		pause(ctx, 2*time.Millisecond)
	}
	return nil
}

// garble makes something that is no use of a message.
func garble(m *nats.Msg) (kind string, data []byte) {
	switch rand.IntN(3) {
	case 0:
		data = make([]byte, rand.IntN(2000))
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		return "chance", data
	case 1:
		return "again", m.Data
	}
	if data = BadBody(m); data != nil {
		return "bad body", data
	}
	return "cut", m.Data[:len(m.Data)/2]
}

// BadBody is the next frame of a router to an edge with a message on a topic of honest subscribers
// whose body is none; nil: the message is no such frame.
func BadBody(m *nats.Msg) []byte {
	var f meshv1.RouterFrame
	if !strings.HasSuffix(m.Subject, ".frames") || proto.Unmarshal(m.Data, &f) != nil {
		return nil
	}
	f.N++
	f.Deliveries = nil
	bodies := [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x2a, 0x7f}, {0x4a, 2, 0xff, 0xfe}, {0x1a, 4, 'x'}}
	for _, body := range bodies {
		f.Deliveries = append(f.Deliveries, &meshv1.Delivery{Topic: "siege/live/0", Body: body})
	}
	data, err := proto.Marshal(&f)
	if err != nil {
		return nil
	}
	return data
}
