package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// numbered publishes 0, 1, 2, … to topics, each until it is answered OK, and follows what a
// subscriber gets of them.
type numbered struct {
	t      *testing.T
	api    pushmeshv1.PublishServiceClient
	topics []string

	mu       sync.Mutex
	answered map[string]int // by topic
	came     map[string]int
	refused  int
}

func newNumbered(t *testing.T, m *procmesh.Mesh, topics []string) *numbered {
	t.Helper()
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n := &numbered{t: t, api: pushmeshv1.NewPublishServiceClient(conn), topics: topics, answered: map[string]int{}, came: map[string]int{}}
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "chaos/+"})
	go n.follow(c) // ends with the connection, which ends with the test
	return n
}

func (n *numbered) follow(c *wireclient.Client) {
	for {
		ft, body, err := c.Next(time.Hour)
		if err != nil {
			return // the test is over
		}
		if ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
			continue
		}
		var m wirev1.Message
		if err := proto.Unmarshal(body, &m); err != nil {
			n.t.Errorf("message: %v", err)
			return
		}
		n.mu.Lock()
		if want := fmt.Sprint(n.came[m.GetTopic()]); string(m.GetPayload()) != want {
			n.t.Errorf("%s: %s came where %s was next", m.GetTopic(), m.GetPayload(), want)
		}
		n.came[m.GetTopic()]++
		n.mu.Unlock()
	}
}

// run publishes to a topic until ctx ends. A key lets what was refused with an unknown outcome be
// published again.
func (n *numbered) run(ctx context.Context, name string) {
	for ctx.Err() == nil {
		n.mu.Lock()
		payload := fmt.Sprint(n.answered[name])
		n.mu.Unlock()
		call, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
		_, err := n.api.Publish(call, &pushmeshv1.PublishRequest{Topic: name, Payload: []byte(payload), DedupeKey: payload})
		cancel()
		n.mu.Lock()
		if err == nil {
			n.answered[name]++
		} else {
			n.refused++
		}
		n.mu.Unlock()
		if err != nil && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			n.t.Errorf("%s: %v", name, err)
			return
		}
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// during publishes to all topics while f runs.
func (n *numbered) during(f func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	for _, name := range n.topics {
		running.Go(func() { n.run(ctx, name) })
	}
	f()
	cancel()
	running.Wait()
}

// more waits until some more messages of each topic were answered.
func (n *numbered) more(some int) {
	n.t.Helper()
	n.mu.Lock()
	want := map[string]int{}
	for _, name := range n.topics {
		want[name] = n.answered[name] + some
	}
	n.mu.Unlock()
	procmesh.Await(n.t, "publishing goes on", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !slices.ContainsFunc(n.topics, func(name string) bool { return n.answered[name] < want[name] })
	})
}

// mover is the command, with the databases of a mesh.
type mover struct {
	path string
	dbs  []string
}

func (m mover) command(args ...string) *exec.Cmd {
	return exec.Command(m.path, append(append([]string{"shard", "move"}, m.dbs...), args...)...)
}

// run does it again where the command says to try again: the databases of a busy machine may not
// answer in time.
func (m mover) run(t *testing.T, args ...string) {
	t.Helper()
	procmesh.Await(t, fmt.Sprintf("shard move %v", args), func() bool {
		out, err := m.command(args...).CombinedOutput()
		if err != nil && !tryAgain(string(out)) {
			t.Fatalf("shard move %v: %v\n%s", args, err, out)
		}
		return err == nil
	})
}

func tryAgain(said string) bool {
	return slices.ContainsFunc([]string{"UNAVAILABLE", "not all databases could be reached", "timeout", "deadline exceeded"}, func(sign string) bool {
		return strings.Contains(said, sign)
	})
}

// Shards move to another server and back by the command, while the mesh is published to, while its
// stores are stopped, and with the command killed half way: every message that was answered reaches
// its subscriber and is in the log where its shard is, in order, once.
func TestShardsMoveByCommand(t *testing.T) {
	t.Parallel()
	home, other := pgtest.URL(t), pgtest.New(t).URL()
	m := begin(t, procmesh.Options{Stores: 2, DB: home, StoreArgs: []string{"--shard-db", "b=" + other}})
	topics := []string{"chaos/stays", "chaos/moves", "chaos/offline", "chaos/killed"}
	n := newNumbered(t, m, topics)
	move := mover{m.Pushmesh, []string{"--db", home, "--shard-db", "b=" + other}}
	shard := func(name string) string { return fmt.Sprint(topic.Shard(name)) }
	n.during(func() {
		n.more(10)
		move.run(t, "--shards", shard("chaos/moves"), "--to", "b")
		n.more(10)
	})
	t.Logf("moved while it was published to: %d refusals", n.refused)

	for _, s := range m.Stores {
		s.Signal(syscall.SIGTERM)
	}
	for _, s := range m.Stores {
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		if _, err := s.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	move.run(t, "--shards", shard("chaos/offline"), "--to", "b")
	for _, s := range m.Stores {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
	n.during(func() { n.more(10) })

	first := topic.Shard("chaos/killed")
	last := min(first+4, topic.Shards-1)
	n.during(func() {
		for range 2 {
			killHalfWay(t, home, move, fmt.Sprintf("%d-%d", first, last))
			n.more(1)
			move.run(t, "--shards", fmt.Sprintf("%d-%d", first, last), "--to", "b")
			n.more(5)
			move.run(t, "--shards", fmt.Sprintf("%d-%d", first, last), "--to", "home")
		}
		move.run(t, "--shards", shard("chaos/killed"), "--to", "b")
		n.more(10)
	})
	procmesh.Await(t, "every message has come", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !slices.ContainsFunc(topics, func(name string) bool { return n.came[name] < n.answered[name] })
	})
	at := map[string]string{"chaos/stays": home}
	for _, name := range topics {
		url, elsewhere := other, home
		if at[name] == home {
			url, elsewhere = home, other
		}
		got := logged(t, connect(t, url), name)
		for i, payload := range got {
			if payload != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %s", name, i, payload)
			}
		}
		if len(got) != n.answered[name] {
			t.Errorf("%s: %d messages, %d were answered", name, len(got), n.answered[name])
		}
		if left := logged(t, connect(t, elsewhere), name); len(left) != 0 {
			t.Errorf("%s: %d messages stayed behind", name, len(left))
		}
	}
	wrongMoves(t, move, home, other)
}

// killHalfWay kills a move with SIGKILL once it has moved some shards and others not. One that
// ended before is undone and tried again.
func killHalfWay(t *testing.T, home string, move mover, shards string) {
	t.Helper()
	const tries = 10
	for range tries {
		if killedHalfWay(t, home, move, shards) {
			return
		}
		move.run(t, "--shards", shards, "--to", "home")
	}
	t.Fatalf("%d moves were through before they could be killed", tries)
}

func killedHalfWay(t *testing.T, home string, move mover, shards string) bool {
	t.Helper()
	conn := connect(t, home)
	count := func(where string) (n int) {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pushmesh.placement WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count("database = 'b' AND NOT moving")
	cmd := move.command("--shards", shards, "--to", "b")
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	through := false
	procmesh.Await(t, "the move is half way", func() bool {
		select {
		case err := <-ended:
			if err != nil && !tryAgain(said.String()) {
				t.Fatalf("shard move: %v\n%s", err, said.String())
			}
			through = true
		default:
		}
		return through || count("database = 'b' AND NOT moving") >= before+2 && count("moving") > 0
	})
	if through {
		return false
	}
	_ = cmd.Process.Kill() // it may have ended since
	if <-ended == nil {
		return false
	}
	t.Logf("killed with %d shards moved and %d on the move", count("database = 'b' AND NOT moving")-before, count("moving"))
	return true
}

// wrongMoves are refused by what is wrong with them, and change nothing.
func wrongMoves(t *testing.T, move mover, home, other string) {
	before := placements(t, home)
	swapped := mover{move.path, []string{"--db", other, "--shard-db", "b=" + home}}
	away := mover{move.path, []string{"--db", home, "--shard-db", "b=postgres://nobody@127.0.0.1:1/none"}}
	for _, tt := range []struct {
		by   mover
		args []string
		want string
	}{
		{move, []string{"--shards", "7", "--to", "c"}, `there is no database "c"`},
		{move, []string{"--shards", "1000-1024", "--to", "b"}, "numbered 0 to 1023"},
		{move, []string{"--shards", "9-8", "--to", "b"}, "shards 9 to 8"},
		{move, []string{"--shards", "seven", "--to", "b"}, "seven"},
		{move, []string{"--shards", "7"}, "--to"},
		{swapped, []string{"--shards", "7", "--to", "b"}, `is the mesh's database "b", not "home"`},
		{away, []string{"--shards", "7", "--to", "b"}, "not all databases could be reached"},
		{mover{move.path, []string{"--db", "sqlite:x.db", "--shard-db", "b=" + other}}, []string{"--shards", "7", "--to", "b"}, "needs Postgres"},
	} {
		var out []byte
		var err error
		procmesh.Await(t, "an answer", func() bool {
			out, err = tt.by.command(tt.args...).CombinedOutput()
			return strings.Contains(string(out), tt.want) || !tryAgain(string(out))
		})
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v: %v, want %q:\n%s", tt.args, err, tt.want, out)
		}
	}
	if now := placements(t, home); now != before {
		t.Errorf("wrong moves changed the map: %s, before %s", now, before)
	}
}

func placements(t *testing.T, home string) (s string) {
	t.Helper()
	if err := connect(t, home).QueryRow(t.Context(), "SELECT coalesce(string_agg(p::text, ' ' ORDER BY p::text), '') FROM pushmesh.placement AS p").Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}
