package chaos

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// atOnce is how soon a refusal must come once the state is known. The machine may be busy: the best
// of several counts.
const atOnce = 10 * time.Millisecond

// The only store is frozen, so that nobody takes its shards: what is published is refused at once,
// to be tried again, as soon as the router knows; what was under way is answered; ephemeral
// messages flow; and once the store goes on, all goes on.
func TestAFrozenStoreWithoutSuccessorIsRefusedFor(t *testing.T) {
	url := pgtest.URL(t)
	m := begin(t, procmesh.Options{DB: url})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	publish := func(topic, payload string) (*code.Error, time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte(payload)})
		return code.From(err), time.Since(begun)
	}
	procmesh.Await(t, "durable publishing works", func() bool {
		err, _ := publish("chaos/silent", "before")
		return err == nil
	})
	m.Stores[0].Signal(syscall.SIGSTOP)
	frozen := time.Now()
	var underWay sync.WaitGroup
	for range 8 {
		underWay.Go(func() {
			err, took := publish("chaos/silent", "under way")
			if err == nil || err.Code != wirev1.Code_CODE_UNAVAILABLE || err.RetryAfter == 0 {
				t.Errorf("under way: %v after %s", err, took)
			}
		})
	}
	underWay.Wait()
	t.Logf("what was under way was answered %s after the freeze", time.Since(frozen).Round(time.Millisecond))
	procmesh.Await(t, "a refusal comes at once", func() bool {
		err, took := publish("chaos/silent", "refused")
		if err == nil || err.Code != wirev1.Code_CODE_UNAVAILABLE || err.RetryAfter == 0 {
			t.Fatalf("a frozen store's answer: %v", err)
		}
		return took < atOnce
	})
	procmesh.Await(t, "ephemeral messages flow", func() bool {
		err, _ := publish("live/silent", "ephemeral")
		return err == nil
	})
	if status, body := m.Routers[0].Status(); status == 0 {
		t.Errorf("readiness: %s", body)
	}
	m.Stores[0].Signal(syscall.SIGCONT)
	thawed := time.Now()
	procmesh.Await(t, "durable publishing goes on", func() bool {
		err, _ := publish("chaos/silent", "after")
		return err == nil
	})
	t.Logf("durable publishing goes on %s after the thaw", time.Since(thawed).Round(time.Millisecond))
	got := logged(t, connect(t, url), "chaos/silent")
	if got[0] != "before" || !slices.Contains(got, "after") {
		// what was under way may be there, and be last
		t.Errorf("the log holds %q", got)
	}
	for _, payload := range got {
		if payload == "refused" {
			t.Error("what was refused at once is in the log")
		}
	}
}
