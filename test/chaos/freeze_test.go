package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// place is where an append was answered to lie.
type place struct {
	epoch, seq uint64
	late       bool // sent after the store lost its shards
}

// appender appends to one store over one stream after the other, whatever it answers.
type appender struct {
	store  meshv1.StoreServiceClient
	topics []string
	name   string

	mu       sync.Mutex
	answered map[string]place // by topic and body
	refused  map[wirev1.Code]int
	late     map[string]bool // sent since over
	over     bool
}

func newAppender(t *testing.T, name, addr string, topics []string) *appender {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &appender{store: meshv1.NewStoreServiceClient(conn), topics: topics, name: name, answered: map[string]place{}, refused: map[wirev1.Code]int{}, late: map[string]bool{}}
}

// run appends until ctx ends, 32 items unanswered at most.
func (a *appender) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; {
		stream, err := a.store.Append(ctx)
		if err != nil {
			continue
		}
		room := make(chan struct{}, 32)
		var sent sync.Map // ref → key
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				resp, err := stream.Recv()
				if err != nil {
					return
				}
				for _, r := range resp.GetResults() {
					key, _ := sent.Load(r.GetRef())
					a.note(fmt.Sprint(key), r)
					<-room
				}
			}
		}()
		for alive := true; alive; {
			select {
			case <-ended:
				alive = false
				continue
			case <-ctx.Done():
				alive = false
				continue
			case room <- struct{}{}:
			}
			n++
			name, body := a.topics[n%len(a.topics)], fmt.Sprintf("%s-%d", a.name, n)
			sent.Store(uint64(n), name+" "+body)
			a.mu.Lock()
			if a.over {
				a.late[name+" "+body] = true
			}
			a.mu.Unlock()
			err := stream.Send(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{{
				Ref: uint64(n), Topic: name, Body: []byte(body), MessageId: fmt.Appendf(nil, "%016d", n), PublishedAt: 1,
			}}})
			alive = err == nil
		}
		<-ended // it notes answers until then
	}
}

func (a *appender) note(key string, r *meshv1.AppendResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.GetCode() == wirev1.Code_CODE_OK {
		a.answered[key] = place{r.GetEpoch(), r.GetSeq(), a.late[key]}
		return
	}
	a.refused[r.GetCode()]++
}

func (a *appender) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.answered)
}

func (a *appender) refusals(codes ...wirev1.Code) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range codes {
		n += a.refused[c]
	}
	return n
}

// owned is how many shards a store says it owns, and what the other does.
func owned(t *testing.T, a *appender, store string) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := a.store.Owners(ctx, &meshv1.OwnersRequest{})
	if err != nil {
		return -1
	}
	for _, r := range resp.GetRanges() {
		if r.GetStoreId() == store {
			n += int(r.GetLast()-r.GetFirst()) + 1
		}
	}
	return n
}

// A store is frozen amid its appends, another one takes its shards and appends, and the first goes
// on where it was: nothing that either answered is missing, twice or elsewhere in the log, so there
// were never two owners.
func TestAFrozenOwnerIsNoOwner(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	m := begin(t, procmesh.Options{Stores: 2, DB: url})
	conn := connect(t, url)
	var topics []string // of the first store
	for i := 0; len(topics) < 8; i++ {
		if name := fmt.Sprintf("chaos/frozen-%d", i); topic.Shard(name) < topic.Shards/2 {
			topics = append(topics, name)
		}
	}
	first, second := newAppender(t, "first", m.StoreAddrs[0], topics), newAppender(t, "second", m.StoreAddrs[1], topics)
	procmesh.Await(t, "the shards are divided", func() bool {
		return owned(t, second, "store-1") == topic.Shards/2 && owned(t, second, "store-2") == topic.Shards/2
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { first.run(ctx) })
	procmesh.Await(t, "the first store appends", func() bool { return first.count() > 200 })

	m.Stores[0].Signal(syscall.SIGSTOP)
	frozen := time.Now()
	before := first.count()
	procmesh.Await(t, "the second store owns everything", func() bool { return owned(t, second, "store-2") == topic.Shards })
	t.Logf("taken over %s after the freeze", time.Since(frozen).Round(time.Millisecond))
	running.Go(func() { second.run(ctx) })
	procmesh.Await(t, "the second store appends", func() bool { return second.count() > 200 })
	second.mu.Lock()
	mark := map[string]uint64{} // topic → highest seq before the thaw
	for key, p := range second.answered {
		name, _, _ := cut(key)
		mark[name] = max(mark[name], p.seq)
	}
	second.mu.Unlock()

	first.mu.Lock()
	first.over = true
	first.mu.Unlock()
	m.Stores[0].Signal(syscall.SIGCONT)
	procmesh.Await(t, "the first store refuses", func() bool {
		return first.refusals(wirev1.Code_CODE_CONFLICT, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_INTERNAL) > 0
	})
	procmesh.Await(t, "the first store has its share again, and appends", func() bool { return first.count() > before+200 })
	cancel()
	running.Wait()
	t.Logf("answered: first %d, second %d; refused by the first %v, by the second %v", first.count(), second.count(), first.refused, second.refused)
	for key, p := range first.answered {
		if name, body, _ := cut(key); p.late && p.seq <= mark[name] {
			t.Errorf("%s: the thawed store took %s as seq %d, the other one had taken %d", name, body, p.seq, mark[name])
		}
	}
	for _, name := range topics {
		judge(t, logOf(t, conn, name), name, first, second)
	}
}
