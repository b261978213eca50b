package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/namespaces"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

func TestPublishedMessagesReachSubscribers(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sub := start(t, nil, with(m.edge, "sub", "room/+/chat", "--ack", "--count", "5", "--timeout", patience.String(), "--format", "json")...)
	sub.says("subscribed")

	if out := must(t, "", with(m.router, "pub", "room/1/chat", "hello", "--header", "kind=greeting")...); !regexp.MustCompile(`^1\t[0-9a-f-]{36}\n$`).MatchString(out) {
		t.Errorf("pub prints %q", out)
	}
	must(t, "whole\ninput", with(m.router, "pub", "room/1/chat")...)
	must(t, "", with(m.router, "pub", "room/1/chat", "--file", file)...)
	if out := must(t, "line 1\nline 2\n", with(m.router, "pub", "room/1/chat", "--lines", "--format", "json")...); strings.Count(out, "\n") != 2 || !strings.Contains(out, `"seq":5`) {
		t.Errorf("pub --lines prints %q", out)
	}
	if code := sub.wait(); code != 0 {
		t.Fatalf("sub: exit code %d: %s", code, sub.err.String())
	}
	got := shown(t, sub.out.String())
	for i, want := range []string{"hello", "whole\ninput", "from a file\n", "line 1", "line 2"} {
		if g := got[i]; g.Seq != uint64(i+1) || *g.Payload != want || g.Topic != "room/1/chat" || g.ID == "" {
			t.Errorf("message %d: %+v, want %q", i, g, want)
		}
	}
	if got[0].Headers["kind"] != "greeting" {
		t.Errorf("headers %v", got[0].Headers)
	}

	if out := must(t, "", with(m.router, "history", "room/1/chat", "--from", "4")...); out != "room/1/chat\t4\tline 1\nroom/1/chat\t5\tline 2\n" {
		t.Errorf("history prints %q", out)
	}
	if out := must(t, "", with(m.router, "sub", "room/1/chat", "--grpc", "--ack", "--last", "2", "--count", "2", "--timeout", patience.String())...); out != "room/1/chat\t4\tline 1\nroom/1/chat\t5\tline 2\n" {
		t.Errorf("sub --grpc prints %q", out)
	}
	var epoch uint64
	if out := must(t, "", with(m.router, "history", "room/1/chat", "--limit", "1", "--format", "json")...); *shown(t, out)[0].Payload != "hello" {
		t.Errorf("history prints %q", out)
	} else {
		epoch = shown(t, out)[0].Epoch
	}
	for from, want := range map[string]string{"--from=earliest": "1", "--from=3": "3", fmt.Sprintf("--from=%d:5", epoch): "5", "--last=2": "4"} {
		out := must(t, "", with(m.edge, "sub", "room/1/chat", from, "--count", "1", "--timeout", patience.String())...)
		if seq := strings.Split(out, "\t")[1]; seq != want {
			t.Errorf("sub %s begins with seq %s, want %s", from, seq, want)
		}
	}
}

func shown(t *testing.T, lines string) (out []cmdline.Message) {
	t.Helper()
	for l := range strings.Lines(lines) {
		var m cmdline.Message
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		out = append(out, m)
	}
	return out
}

func TestDedupeKey(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	first := must(t, "", with(m.router, "pub", "room/1/chat", "a", "--dedupe-key", "k")...)
	second := must(t, "", with(m.router, "pub", "room/1/chat", "a", "--dedupe-key", "k")...)
	if second != strings.TrimSuffix(first, "\n")+"\tduplicate\n" {
		t.Errorf("first %q, second %q", first, second)
	}
}

func TestScheduledMessages(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	out := must(t, "", with(m.router, "pub", "room/1/chat", "later", "--delay", "1h")...)
	fields := strings.Fields(out)
	if len(fields) != 3 || fields[0] != "-" || fields[2] != "scheduled" {
		t.Fatalf("pub prints %q", out)
	}
	must(t, "", with(m.router, "cancel", fields[1])...)
	sub := start(t, nil, with(m.edge, "sub", "room/+/soon", "--timeout", patience.String())...)
	sub.says("subscribed")
	// A store that hears of a message after its time appends it at once, and nothing is scheduled:
	// on a slow machine the delay has to be longer.
	for n, delay := 0, 100*time.Millisecond; ; n, delay = n+1, 4*delay {
		topic := fmt.Sprintf("room/%d/soon", n)
		out = must(t, "", with(m.router, "pub", topic, "soon", "--delay", delay.String())...)
		if strings.HasSuffix(out, "\tscheduled\n") {
			sub.says(topic + "\t1\tsoon\n")
			break
		}
		if delay > patience {
			t.Fatalf("a message with a delay of %v is not scheduled: %q", delay, out)
		}
	}
	late := ran(t, "", with(m.router, "cancel", strings.Fields(out)[1])...)
	if code := late.wait(); code != 1 || !strings.Contains(late.err.String(), "CONFLICT") {
		t.Errorf("cancel of what was delivered: exit code %d, says %q", code, late.err.String())
	}
}

func TestSessionGoesOnWhereItStood(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	args := with(m.edge, "sub", "room/1/chat", "--ack", "--session", "phone", "--client-id", "ann", "--count", "1", "--timeout", patience.String())
	first := start(t, nil, args...)
	first.says("subscribed")
	must(t, "1\n2\n3\n", with(m.router, "pub", "room/1/chat", "--lines")...)
	if code := first.wait(); code != 0 || first.out.String() != "room/1/chat\t1\t1\n" {
		t.Fatalf("exit code %d: %q %q", code, first.out.String(), first.err.String())
	}
	if out := must(t, "", args...); out != "room/1/chat\t2\t2\n" {
		t.Errorf("the session goes on with %q", out)
	}
	if out := must(t, "", args...); out != "room/1/chat\t3\t3\n" {
		t.Errorf("the session goes on with %q", out)
	}
}

func TestStopAndStartKeepsMessages(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	m := startMesh(t, data)
	must(t, "", with(m.router, "pub", "room/1/chat", "before")...)
	must(t, "", with(m.router, "namespace", "put", "orders", "--durable")...)
	m.stop()
	m = startMesh(t, data)
	must(t, "", with(m.router, "pub", "room/1/chat", "after")...)
	if out := must(t, "", with(m.router, "history", "room/1/chat")...); out != "room/1/chat\t1\tbefore\nroom/1/chat\t2\tafter\n" {
		t.Errorf("history prints %q", out)
	}
	if out := must(t, "", with(m.router, "namespace", "get", "orders", "--format", "json")...); !strings.Contains(out, `"durable":true`) {
		t.Errorf("namespace get prints %q", out)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	put := must(t, "", with(m.router, "namespace", "put", "orders", "--durable", "--retention", "48h", "--max-redeliveries", "0",
		"--overflow", "disconnect", "--max-payload", "10", "--format", "json")...)
	var n namespaces.Namespace
	if err := json.Unmarshal([]byte(put), &n); err != nil {
		t.Fatal(err)
	}
	if !n.Durable || n.Retention != "48h0m0s" || n.MaxRedeliveries == nil || *n.MaxRedeliveries != 0 || n.Overflow != "disconnect" || n.Version == 0 {
		t.Errorf("put prints %s", put)
	}
	if get := must(t, "", with(m.router, "namespace", "get", "orders", "--format", "json")...); get != put {
		t.Errorf("get prints %s, put %s", get, put)
	}
	list := must(t, "", with(m.router, "namespace", "list")...)
	for _, want := range []string{"PREFIX", "global", "room", "user", "default", "orders"} {
		if !strings.Contains(list, want) {
			t.Errorf("list lacks %s:\n%s", want, list)
		}
	}
	must(t, "", with(m.router, "namespace", "delete", "orders")...)
	gone := ran(t, "", with(m.router, "namespace", "get", "orders")...)
	if code := gone.wait(); code != 1 || !strings.Contains(gone.err.String(), "NOT_FOUND") || !strings.Contains(gone.err.String(), "will not help") {
		t.Errorf("exit code %d: %s", code, gone.err.String())
	}
}

func TestDevCommandReplaysAndExits(t *testing.T) {
	t.Parallel()
	sample := filepath.Join("..", "..", "..", "..", "deploy", "sample", "rooms.jsonl.gz")
	file := filepath.Join(t.TempDir(), "small.jsonl")
	var small strings.Builder
	for i := range 60 {
		fmt.Fprintf(&small, `{"room":"r%d","at":"10:00","kind":"say","user":"u%d","text":"hi"}`+"\n", i%2, i%6)
	}
	if err := os.WriteFile(file, []byte(small.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sample); err != nil {
		t.Errorf("the sample of `make run` is not there: %v", err)
	}
	out := must(t, "", "dev", "--data", t.TempDir(), "--ports-from", "0", "--replay", file, "--exit", "--log-level", "error")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "expected=180 delivered=180 missing=0 duplicate=0 disorder=0 seconds=") {
		t.Errorf("last line %q", last)
	}
}

func TestDevCommandStaysUpUntilStopped(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := start(t, nil, "dev", "--data", data, "--ports-from", "0", "--log-level", "error")
	c.says("Type in another terminal")
	addr := func(what string) string {
		found := regexp.MustCompile(what + `\s+(\S+)`).FindStringSubmatch(c.out.String())
		if found == nil {
			t.Fatalf("no %s in %q", what, c.out.String())
		}
		return found[1]
	}
	must(t, "", "pub", "room/7/chat", "hello", "--router", addr(`public API \(gRPC\)`))
	if out := must(t, "", "sub", "room/7/#", "--from", "earliest", "--count", "1", "--timeout", patience.String(), "--edge", addr(`subscribers \(TCP\)`)); out != "room/7/chat\t1\thello\n" {
		t.Errorf("sub prints %q", out)
	}
	second := start(t, nil, "dev", "--data", data, "--ports-from", "0", "--log-level", "error")
	if code := second.wait(); code != 1 || !strings.Contains(second.err.String(), "another process has this database open") {
		t.Errorf("a second mesh on the same data: exit code %d, says %q", code, second.err.String())
	}
	third := start(t, nil, "dev", "--data", t.TempDir(), "--ports-from", "0", "--router-listen", addr(`public API \(gRPC\)`), "--log-level", "error")
	if code := third.wait(); code != 1 || !strings.Contains(third.err.String(), "--ports-from") {
		t.Errorf("a mesh on the same port: exit code %d, says %q", code, third.err.String())
	}
	c.cancel()
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err.String())
	}
	if _, err := os.Stat(filepath.Join(data, "pushmesh.db")); err != nil {
		t.Error(err)
	}
}
