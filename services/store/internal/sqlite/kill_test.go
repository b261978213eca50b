package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/sqlite"
)

// childEnv names the database file to a child process, which appends until it is killed.
const childEnv = "PUSHMESH_SQLITE_KILL_TEST"

func openAt(t *testing.T, path string) *sqlite.Backend {
	t.Helper()
	b, err := sqlite.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

var owner = backend.Owner{StoreID: "a", Incarnation: 7}

// TestKilled appends in a child process that is killed with SIGKILL: what the child said was
// acknowledged is there when the file is opened again, in order, without holes, and numbering goes
// on behind it.
func TestKilled(t *testing.T) {
	if path := os.Getenv(childEnv); path != "" {
		appendForEver(t, path)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	acknowledged := map[string]int{}
	for range 3 {
		for topic, n := range killedChild(t, path) {
			acknowledged[topic] = n
		}
		b := openAt(t, path)
		l := backendtest.OpenLog(t, b, owner, 1, time.Now)
		l.WaitReady(t)
		for topic, n := range acknowledged {
			bodies := l.Bodies(t, topic)
			if len(bodies) < n {
				t.Errorf("%s: %d acknowledged, %d there", topic, n, len(bodies))
			}
			for i, body := range bodies {
				if body != fmt.Sprint(i+1) {
					t.Fatalf("%s: seq %d holds %s", topic, i+1, body)
				}
			}
		}
		l.Close(t)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acknowledged) == 0 {
		t.Error("nothing was acknowledged")
	}
}

// killedChild runs a child until it has acknowledged enough, kills it, and says what was
// acknowledged.
func killedChild(t *testing.T, path string) map[string]int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string]int{}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if n == 2000 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		topic, seq, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.Atoi(seq); ok && err == nil && strings.HasPrefix(topic, "room/") {
			// a line may be cut
			acknowledged[topic] = max(acknowledged[topic], v)
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return acknowledged
}

// printer acknowledges on standard output, as soon as the log does.
type printer struct{ topics map[uint64]string }

func (p *printer) Results(rs []*meshv1.AppendResult) {
	var b strings.Builder
	for _, r := range rs {
		if r.GetCode() == wirev1.Code_CODE_OK {
			fmt.Fprintf(&b, "%s %d\n", p.topics[r.GetRef()], r.GetSeq())
		}
	}
	_, _ = os.Stdout.WriteString(b.String())
}

func appendForEver(t *testing.T, path string) {
	l := backendtest.OpenLog(t, openAt(t, path), owner, 1, time.Now)
	l.WaitReady(t)
	heads, err := l.Heads(context.Background(), []string{"room/0", "room/1", "room/2"}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); ; n++ {
		topics := map[uint64]string{}
		var items []*meshv1.AppendItem
		for i, h := range heads {
			item := backendtest.Item(h.GetTopic(), fmt.Sprint(h.GetHead()+n))
			item.Ref = uint64(i)
			topics[item.Ref] = h.GetTopic()
			items = append(items, item)
		}
		l.Log.Append(items, &printer{topics})
		if n%64 == 0 {
			// stay below what may wait: the numbers in the bodies must be those of the log
			l.Append(t, backendtest.Item("room/pause", "x"))
		}
	}
}
