package edge

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// A message expires by the database's time. An edge on a machine whose clock is an hour ahead would
// drop every durable message with a TTL below that, and have sessions pass it over, and one on a
// machine whose clock is behind would deliver what is out of date.
func TestMessagesExpireByTheDatabasesTime(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"the machine's clock is ahead": time.Hour, "the machine's clock is behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e, _ := w.edge("e1")
			mesh := func() time.Time { return time.Now().Add(-ahead) }
			beat, err := proto.Marshal(&meshv1.StoreBeat{StoreId: "s", Time: uint64(mesh().UnixMicro())})
			if err != nil {
				t.Fatal(err)
			}
			store := w.nats.Bus("store")
			edgetest.WaitFor(t, "the database's time is known", func() error {
				if err := store.Publish(bus.StoreBeat, beat); err != nil {
					// the edge may not listen yet
					return err
				}
				if err := e.clock.Check(); err == nil || !strings.Contains(err.Error(), "apart from the database's") {
					return errors.New("no store was heard")
				}
				return nil
			})
			session := w.client(e, &wirev1.Hello{ClientId: "c", Session: "s"})
			session.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_SESSION})
			plain := w.client(e, &wirev1.Hello{})
			plain.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
			w.router.WaitHolds("room/1")
			all := w.store.Publish("room/1", 3)
			all[0].ExpiresAt = uint64(mesh().Add(10 * time.Minute).UnixMicro())
			all[1].ExpiresAt = uint64(mesh().Add(-10 * time.Minute).UnixMicro())
			w.router.Send(all...)
			for _, c := range []*client{session, plain} {
				c.messages("room/1", 1)
				var over wirev1.Progress
				if c.read(wirev1.FrameType_FRAME_TYPE_PROGRESS, &over); over.GetCode() != wirev1.Code_CODE_EXPIRED || over.GetTo() != 2 {
					t.Errorf("%v", &over)
				}
				c.messages("room/1", 3)
			}
		})
	}
}
