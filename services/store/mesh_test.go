package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// childEnv holds NATS and database URLs for a child process, which is a store until it is killed.
const childEnv = "PUSHMESH_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if urls := os.Getenv(childEnv); urls != "" {
		if err := child(urls); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(urls string) error {
	fields := strings.Fields(urls) // NATS, database, maybe another one
	s := Settings{ID: "first", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", DB: fields[1], NATS: fields[0], LogLevel: "warn"}
	if len(fields) > 2 {
		s.ShardDBs = map[string]string{"b": fields[2]}
	}
	s.PlainTiers = true
	st, err := New(context.Background(), s)
	if err != nil {
		return err
	}
	return lifecycle.Run(context.Background(), announced{st}, patience, nil)
}

// announced says on standard output where a store serves.
type announced struct{ *Store }

func (a announced) Start(ctx context.Context) error {
	err := a.Store.Start(ctx)
	fmt.Println("serves", a.Addr())
	return err
}

// firstStore runs a store in a process of its own.
func firstStore(t *testing.T, nats, db string) (*exec.Cmd, meshv1.StoreServiceClient) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+nats+" "+db)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	need(t, err)
	need(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	need(t, err)
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "serves ")
	if !ok {
		t.Fatalf("the child says %q", line)
	}
	return cmd, dial(t, addr)
}

func natsServer(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	need(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(patience) {
		t.Fatal("nats does not start")
	}
	return s
}

// shares counts the shards of each store, as one of them says.
func shares(t *testing.T, c meshv1.StoreServiceClient) map[string]int {
	t.Helper()
	resp, err := c.Owners(within(t), &meshv1.OwnersRequest{})
	need(t, err)
	n := map[string]int{}
	for _, r := range resp.GetRanges() {
		n[r.GetStoreId()] += int(r.GetLast()-r.GetFirst()) + 1
	}
	return n
}

// topicIn is a topic whose shard lies in the lower half or not.
func topicIn(lower bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("room/%d", i); (topic.Shard(name) < topic.Shards/2) == lower {
			return name
		}
	}
}

func one(t *testing.T, c meshv1.StoreServiceClient, name string) *meshv1.AppendResult {
	t.Helper()
	return appendAll(t, c, item(1, name, "x"))[1]
}

// Two stores divide the shards; one is killed, and the other one takes its shards and goes on
// numbering; NATS goes, and the store goes on.
func TestTwoStoresOnPostgres(t *testing.T) {
	t.Parallel()
	nats, db := natsServer(t), pgtest.URL(t)
	process, first := firstStore(t, nats.ClientURL(), db)
	eventually(t, "one store owns everything", func() bool { return shares(t, first)["first"] == topic.Shards })
	low, high := topicIn(true), topicIn(false)
	for want := uint64(1); want <= 3; want++ {
		for _, name := range []string{low, high} {
			if r, _ := taken(t, first, item(1, name, "x")); r.GetSeq() != want {
				t.Fatalf("%s: %v", name, r)
			}
		}
	}

	st := serving(t, Settings{ID: "second", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
	second := dial(t, st.Addr())
	half := map[string]int{"first": topic.Shards / 2, "second": topic.Shards / 2}
	eventually(t, "the shards are divided, and both say so", func() bool {
		a, b := shares(t, first), shares(t, second)
		return fmt.Sprint(a) == fmt.Sprint(half) && fmt.Sprint(b) == fmt.Sprint(half)
	})
	if r, _ := taken(t, first, item(1, low, "x")); r.GetSeq() != 4 {
		t.Errorf("the first store's half: %v", r)
	}
	if r, _ := taken(t, second, item(1, high, "x")); r.GetSeq() != 4 {
		t.Errorf("the second store's half: %v", r)
	}
	lows := uint64(4)
	eventually(t, "the wrong store refuses", func() bool {
		r := one(t, second, low)
		if r.GetCode() == wirev1.Code_CODE_OK {
			// the first one was silent for so long that the second one took its half
			lows++
		}
		return r.GetCode() == wirev1.Code_CODE_CONFLICT
	})

	need(t, process.Process.Kill())
	_ = process.Wait() // it was killed
	killed := time.Now()
	eventually(t, "the second store owns everything", func() bool { return shares(t, second)["second"] == topic.Shards })
	t.Logf("taken over after %s", time.Since(killed).Round(time.Millisecond))
	if r, _ := taken(t, second, item(1, low, "x")); r.GetSeq() != lows+1 {
		t.Errorf("after the takeover: %v, want seq %d", r, lows+1)
	}
	if all, _, _ := readAll(t, second, &meshv1.ReadLogRequest{Topic: low}); len(all) != int(lows+1) {
		t.Errorf("%d messages after the takeover, want %d", len(all), lows+1)
	}

	nats.Shutdown()
	eventually(t, "readyz names NATS", func() bool {
		resp, err := http.Get("http://" + st.HTTPAddr() + "/readyz?verbose")
		need(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		need(t, err)
		return resp.StatusCode == http.StatusOK && strings.Contains(string(body), "nats: degraded")
	})
	if r, _ := taken(t, second, item(1, low, "x")); r.GetSeq() != lows+2 {
		t.Errorf("without NATS: %v, want seq %d", r, lows+2)
	}
}
