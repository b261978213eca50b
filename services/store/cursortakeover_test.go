package store

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A store that hung while another one took its shards writes no positions that it was sent before:
// the session has newer ones since, and what it ACKed would come again.
func TestAThawedStoreRewindsNoSession(t *testing.T) {
	t.Parallel()
	nats, db := natsServer(t), pgtest.URL(t)
	process, first := firstStore(t, nats.ClientURL(), db)
	st := serving(t, Settings{ID: "second", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
	second := dial(t, st.Addr())
	half := map[string]int{"first": topic.Shards / 2, "second": topic.Shards / 2}
	eventually(t, "the shards are divided", func() bool { return fmt.Sprint(shares(t, first)) == fmt.Sprint(half) })
	user, ctx := "u", within(t)
	for s := topic.SessionShard(user, "s"); s >= topic.Shards/2; s = topic.SessionShard(user, "s") {
		user += "u"
	}
	held, err := first.AttachSession(ctx, &meshv1.AttachSessionRequest{User: user, Name: "s", EdgeId: "e"})
	need(t, err)
	write := func(c meshv1.StoreServiceClient, floor uint64) wirev1.Code {
		resp, err := c.WriteCursors(ctx, &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{{
			User: user, Name: "s", Generation: held.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "room/1", Epoch: 1, Floor: floor}},
		}}})
		if err != nil {
			return code.Of(err)
		}
		return resp.GetCodes()[0]
	}
	if c := write(first, 1); c != wirev1.Code_CODE_OK {
		t.Fatal(c)
	}

	freeze(t, process)
	late := make(chan wirev1.Code, 1)
	go func() { late <- write(first, 2) }()
	eventually(t, "another store has the session's shard", func() bool { return write(second, 9) == wirev1.Code_CODE_OK })
	need(t, process.Process.Signal(syscall.SIGCONT))
	if c := <-late; c == wirev1.Code_CODE_OK {
		t.Error("the store that hung wrote what it was sent before")
	}
	var floor uint64
	eventually(t, "the session is found", func() bool {
		for _, c := range []meshv1.StoreServiceClient{first, second} {
			if resp, err := c.GetSession(context.WithoutCancel(ctx), &meshv1.GetSessionRequest{User: user, Name: "s"}); err == nil {
				floor = resp.GetSession().GetCursors()[0].GetFloor()
				return true
			}
		}
		return false
	})
	if floor != 9 {
		t.Errorf("the session stands at %d, where 9 was stored", floor)
	}
}
