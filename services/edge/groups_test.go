package edge

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// makeGroups has a client make groups of its own. Who is told to come back does so when it was told
// to; it returns once each is made.
func makeGroups(c *client, name string, n int) error {
	missing := make([]uint32, n)
	for i := range missing {
		missing[i] = uint32(i + 1)
	}
	for len(missing) > 0 {
		var frames []byte
		for _, id := range missing {
			var err error
			if frames, err = wire.Append(frames, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Group: name, Filter: fmt.Sprint("many/", id), Ack: true}); err != nil {
				return err
			}
		}
		if _, err := c.conn.Write(frames); err != nil {
			return err
		}
		refused, wait, err := answers(c, len(missing))
		if err != nil {
			return err
		}
		missing = refused
		<-time.After(wait)
	}
	return nil
}

// answers are those to so many Subscribes: which were refused, and when to come back.
func answers(c *client, n int) (refused []uint32, wait time.Duration, err error) {
	for range n {
		if err := c.conn.SetReadDeadline(time.Now().Add(edgetest.Patience)); err != nil {
			return nil, 0, err
		}
		ft, body, err := wire.Read(c.conn, nil, wire.MaxBody)
		switch {
		case err != nil:
			return nil, 0, err
		case ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
			continue
		}
		e := &wirev1.Error{}
		if err := proto.Unmarshal(body, e); err != nil || ft != wirev1.FrameType_FRAME_TYPE_ERROR || e.GetRetryAfterMs() == 0 {
			return nil, 0, fmt.Errorf("%v %v: %w", ft, e, err)
		}
		refused, wait = append(refused, e.GetRef()), max(wait, time.Duration(e.GetRetryAfterMs())*time.Millisecond)
	}
	return refused, wait, nil
}

// A group gets its messages, however long its filter is: what is announced of its members is
// nothing that the edge wants messages of.
func TestAGroupOfALongFilter(t *testing.T) {
	w := newWorld(t)
	e, _ := w.edge("e1")
	// 254 bytes with its group
	long := "mine/" + strings.Repeat("x", topic.MaxLen-len("mine/")-len("g")-1)
	c := w.client(e, &wirev1.Hello{ClientId: "a"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Group: "g", Filter: long, Ack: true})
	w.router.WaitHolds(long, topic.AnnouncedMembers(long))
	w.router.Send(w.store.Publish(long, 1)...)
	c.messages(long, 1)
	c.ack(long, 1)
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.read(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{})
}

var manyGroups = flag.Int("groups", 1000, "how many groups TestAGroupGoesOnWhileVeryManyAreMade has made; 20,000 take half a minute on two busy cores")

// Members of a group get their messages while other connections make very many groups, and once
// these are there.
func TestAGroupGoesOnWhileVeryManyAreMade(t *testing.T) {
	w := newWorld(t)
	e, _ := w.edge("e1")
	c := w.client(e, &wirev1.Hello{ClientId: "innocent"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Group: "g", Filter: "mine", Ack: true})
	w.router.WaitHolds("mine", topic.MembersOf("mine"))
	seq := uint64(0)
	way := func() time.Duration {
		seq++
		began := time.Now()
		w.router.Send(w.store.Publish("mine", 1)...)
		c.messages("mine", seq)
		took := time.Since(began)
		c.ack("mine", seq)
		return took
	}
	percentiles := func(when string, ways []time.Duration) {
		slices.Sort(ways)
		t.Logf("%s: %d messages, p50 %v, p90 %v, max %v", when, len(ways), ways[len(ways)/2], ways[len(ways)*9/10], ways[len(ways)-1])
	}
	var calm, meanwhile, after []time.Duration
	for range 200 {
		calm = append(calm, way())
	}
	const connections = 20
	each := *manyGroups / connections
	made := make(chan error, connections)
	for i := range connections {
		m := w.client(e, &wirev1.Hello{ClientId: fmt.Sprint("maker-", i)})
		go func() { made <- makeGroups(m, fmt.Sprint("x", i), each) }()
	}
	for done := 0; done < connections; {
		select {
		case err := <-made:
			if done++; err != nil {
				t.Fatal(err)
			}
		default:
			meanwhile = append(meanwhile, way())
		}
	}
	for range 200 {
		after = append(after, way())
	}
	percentiles("before", calm)
	percentiles("meanwhile", meanwhile)
	percentiles("afterwards", after)
	if n := e.mesh.GroupStats().Dispatchers.Load(); n != int64(connections*each)+1 {
		t.Errorf("%d groups are dispatched", n)
	}
	if len(meanwhile) < 3 { // one that waits for all of them is the only one, whatever the machine
		t.Errorf("%d messages came while groups were made", len(meanwhile))
	}
	if half := meanwhile[len(meanwhile)/2]; half > edgetest.Patience/10 {
		t.Errorf("half of the messages took more than %v while groups were made", half)
	}
}
