package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
)

// What is wrong is said, with the exit code that scripts look at, before anything is connected.
func TestWrongUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("nope"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big.model")
	if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, ranking.MaxModel+1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"bogus"}, 2, `there is no command "bogus": pushmesh --help lists them`},
		{[]string{"sub"}, 2, "<filter>"},
		{[]string{"pub"}, 2, "<topic>"},
		{[]string{"pub", "a", "x", "--lines"}, 2, "exclude each other"},
		{[]string{"sub", "a", "--websocket", "--grpc"}, 2, "exclude each other"},
		{[]string{"replay", "usage_test.go", "--websocket", "2"}, 2, "it must be 0 to 1"},
		{[]string{"pub", "a", "--lines", "--dedupe-key", "k"}, 2, "--dedupe-key is for one message"},
		{[]string{"pub", "a", "x", "--priority", "10"}, 2, "--priority is 10, it must be 0 to 9"},
		{[]string{"pub", "a", "x", "--header", "novalue"}, 2, "NAME=VALUE"},
		{[]string{"pub", "a", "x", "--header", "name=a\xff", "--router", "127.0.0.1:1"}, 2, "argument 5, \"name=a\\xff\", is not UTF-8"},
		{[]string{"pub", "a", "\xff\xfe", "--router", "127.0.0.1:1"}, 2, "is not UTF-8"},
		{[]string{"pub", "a\xff", "x", "--router", "127.0.0.1:1"}, 2, "is not UTF-8"},
		{[]string{"pub", "a", "x", "--ttl", "soon"}, 2, "--ttl"},
		{[]string{"pub", "a", "--file", "/does/not/exist"}, 2, "/does/not/exist"},
		{[]string{"sub", "a", "--from", "yesterday"}, 2, "EPOCH:SEQ"},
		{[]string{"sub", "a", "--from", "x:1"}, 2, "epoch must be a number"},
		{[]string{"sub", "a", "--from", "0"}, 2, "EPOCH:SEQ"},
		{[]string{"sub", "a", "--from", "1", "--last", "2"}, 2, "exclude each other"},
		{[]string{"sub", "a", "--session", "s"}, 2, "--client-id"},
		{[]string{"sub", "a", "--from", "session"}, 2, "--session"},
		{[]string{"sub", "a", "--format", "xml"}, 2, "--format"},
		{[]string{"context", "use", "nowhere"}, 2, "there is no context"},
		{[]string{"sub", "a", "--context", "nowhere"}, 2, "there is no context"},
		{[]string{"pub", "a", "x", "--router", "127.0.0.1:1", "--context", "nowhere"}, 2, "there is no context"},
		{[]string{"auth", "explain", "--user", "ann", "--context", "nowhere"}, 2, "--context has no effect here"},
		{[]string{"auth", "explain"}, 2, "--token-file"},
		{[]string{"sub", "a", "--token-file", "/does/not/exist"}, 2, "--token-file: open /does/not/exist"},
		{[]string{"sub", "a", "--token-file", bad + "/"}, 2, "--token-file"},
		{[]string{"replay", bad, "--token-file", "/does/not/exist"}, 2, "--token-file"},
		{[]string{"doctor", "--token-file", "-"}, 2, "--token-file: standard input has no token in it"},
		{[]string{"namespace", "put", "a", "--overflow", "explode"}, 2, "--overflow"},
		{[]string{"pub", "a", "x", "--deliver-at", "tomorrow"}, 2, "--deliver-at"},
		{[]string{"pub", "a", "x", "--delay", "1h", "--deliver-at", "2030-01-01T00:00:00Z"}, 2, "exclude each other"},
		{[]string{"cancel", "17"}, 2, "message id"},
		{[]string{"dlq", "replay"}, 2, "either a filter, or dead letters"},
		{[]string{"dlq", "discard", "a", "--id", "1"}, 2, "either a filter, or dead letters"},
		{[]string{"doctor", "--skew", "0s"}, 2, "--skew"},
		{[]string{"doctor", "--router", "127.0.0.1:1"}, 1, ""},
		{[]string{"top", "--every", "1ms"}, 2, "--every"},
		{[]string{"top", "--once", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"rebalance", "edge-1"}, 2, "--share"},
		{[]string{"rebalance"}, 2, "--even"},
		{[]string{"rebalance", "edge-1", "--even"}, 2, "--even"},
		{[]string{"rebalance", "--even", "--share", "0.5"}, 2, "--even"},
		{[]string{"rebalance", "--even", "--above", "0"}, 2, "--above"},
		{[]string{"rebalance", "--even", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"rebalance", "edge-1", "--share", "1.5"}, 2, "--share"},
		{[]string{"rebalance", "edge-1", "--share", "0.5", "--within", "0s"}, 2, "--within"},
		{[]string{"rebalance", "edge-1", "--share", "0.5", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"store", "accept-server"}, 2, "--same-epoch or --new-epoch"},
		{[]string{"store", "accept-server", "--same-epoch", "--new-epoch"}, 2, "can't be used together"},
		{[]string{"store", "accept-server", "--same-epoch", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"disconnect"}, 2, "--client-id or --user"},
		{[]string{"session", "set-profile", "a=1"}, 2, "--client-id or --user"},
		{[]string{"session", "set-profile", "a=x", "--user", "u"}, 2, "is not a number"},
		{[]string{"session", "set-profile", "a=1", "--user", "u", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"sub", "a", "--profile", "a=1"}, 2, "--rank-top-k"},
		{[]string{"sub", "a", "--rank-top-k", "1", "--profile", "a=x"}, 2, "is not a number"},
		{[]string{"sub", "a", "--rank-top-k", "1", "--profile-vector", "1,x"}, 2, "--profile-vector"},
		{[]string{"sub", "a", "--rank-top-k", "1", "--from", "7"}, 2, "--rank-top-k does not support --from 7"},
		{[]string{"sub", "a", "--rank-top-k", "1", "--group", "g"}, 2, "--rank-top-k and --group exclude each other"},
		{[]string{"rank", "/does/not/exist", "--weights", "a=1"}, 2, "/does/not/exist"},
		{[]string{"rank"}, 2, "there are 0"},
		{[]string{"rank", "--weights", "a=1", "--expression", "1"}, 2, "there are 2"},
		{[]string{"rank", "--weights", "a"}, 2, "--weights \"a\": it must be NAME=VALUE"},
		{[]string{"rank", "--weights", "a=x"}, 2, "--weights a: \"x\" is not a number"},
		{[]string{"rank", "--model", "m@x"}, 2, "NAME@VERSION"},
		{[]string{"rank", "--embedding", "dot"}, 2, "--vector"},
		{[]string{"rank", "--embedding", "dot", "--vector", "1,x"}, 2, "not a number"},
		{[]string{"rank", "--embedding", "l2", "--vector", "1"}, 2, "--embedding"},
		{[]string{"rank", "--weights", "a=1", "--profile", "b=x"}, 2, "--profile b"},
		{[]string{"rank", "--weights", "a=1", "--diversify", "topic"}, 2, "KEY:N"},
		{[]string{"rank", "--weights", "a=1", "--diversify", "topic:0"}, 2, "KEY:N"},
		{[]string{"rank", "--weights", "a=1", "--timeout", "0s"}, 2, "--timeout"},
		{[]string{"rank", "--request", bad}, 2, "bad.jsonl"},
		{[]string{"rank", bad, "--weights", "a=1"}, 1, "bad.jsonl: line 1"},
		{[]string{"rank", "--query", bad, "--weights", "a=1"}, 1, "bad.jsonl: line 1"},
		{[]string{"namespace", "put", "a", "--rank", bad}, 2, "bad.jsonl"},
		{[]string{"model", "put", "m"}, 2, "<file>"},
		{[]string{"model", "put", "m", "/does/not/exist"}, 2, "/does/not/exist"},
		{[]string{"model", "put", "m", bad, "--file-format", "onnx"}, 2, "--file-format"},
		{[]string{"model", "put", "m", bad, "--timeout", "0s"}, 2, "--timeout"},
		{[]string{"model", "put", "m", bad, "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"model", "put", "m", big}, 1, "at most 67108864"},
		{[]string{"model", "delete", "m"}, 2, "NAME@VERSION"},
		{[]string{"model", "delete", "m@0"}, 2, "NAME@VERSION"},
		{[]string{"model", "rollback"}, 2, "<name>"},
		{[]string{"model", "list", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"disconnect", "--user", "a", "--code", "NO"}, 2, "FORBIDDEN"},
		{[]string{"disconnect", "--user", "a", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"dlq", "list", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"dev", "--exit"}, 2, "--exit needs --replay"},
		{[]string{"dev", "--ports-from", "70000"}, 2, "--ports-from"},
		{[]string{"dev", "--edge-listen", "nowhere"}, 2, "--edge-listen"},
		{[]string{"replay", "/does/not/exist"}, 2, "/does/not/exist"},
		{[]string{"replay", bad}, 1, "line 1"},
		{[]string{"replay", bad, "--fraction", "2"}, 2, "--fraction"},
		{[]string{"mesh", "--bin", "/does/not/exist", "--nats-server", "/does/not/exist"}, 2, "--nats-server"},
		// Nobody listens on port 1.
		{[]string{"pub", "a", "x", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"pub", "a", "x", "--router", "127.0.0.1:1"}, 1, "trying again may help"},
		{[]string{"namespace", "list", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"history", "a", "--router", "127.0.0.1:1"}, 1, "UNAVAILABLE"},
		{[]string{"sub", "a//b", "--edge", "127.0.0.1:1"}, 1, "BAD_TOPIC"},
	} {
		cmd := start(t, strings.NewReader(""), c.args...)
		if code := cmd.wait(); code != c.code || !strings.Contains(cmd.err.String(), c.says) {
			t.Errorf("%v: exit code %d, says %q; want %d and %q", c.args, code, cmd.err.String(), c.code, c.says)
		}
	}
}

func TestNobodyThereIsATimeout(t *testing.T) {
	longer(t, func(timeout string) bool {
		cmd := start(t, nil, "sub", "a", "--edge", "127.0.0.1:1", "--timeout", timeout)
		if code := cmd.wait(); code != 3 {
			t.Fatalf("exit code %d, says %q", code, cmd.err.String())
		}
		return strings.Contains(cmd.err.String(), "connection refused")
	})
}

// longer tries with longer and longer time-outs, since a busy machine may take longer than any of
// them to come to what is looked for.
func longer(t *testing.T, good func(timeout string) bool) {
	t.Helper()
	for timeout := 300 * time.Millisecond; ; timeout *= 4 {
		if good(timeout.String()) {
			return
		}
		if timeout > patience/4 {
			t.Fatalf("not within %s", timeout)
		}
	}
}

// What the mesh refuses is said with its Code and whether trying again helps.
func TestRefusals(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	for _, c := range []struct {
		args []string
		says string
	}{
		{with(m.router, "pub", "a//b", "x"), "BAD_TOPIC"},
		{with(m.router, "pub", "room/+/chat", "x"), "BAD_TOPIC"},
		{with(m.router, "pub", "room/1/chat", strings.Repeat("x", 300_000)), "PAYLOAD_TOO_LARGE"},
		{with(m.router, "history", "room/1/chat", "--epoch", "5"), "EPOCH_CHANGED"},
		{with(m.router, "history", "#"), "BAD_TOPIC"},
		{with(m.router, "namespace", "get", "nowhere"), "NOT_FOUND"},
		{with(m.router, "namespace", "put", "a//b"), ""},
		{with(m.router, "namespace", "put", "orders", "--retention", "9000h"), "INVALID_ARGUMENT"},
	} {
		cmd := ran(t, "", c.args...)
		if code := cmd.wait(); code != 1 || !strings.Contains(cmd.err.String(), c.says) || !strings.Contains(cmd.err.String(), "will not help") {
			t.Errorf("%.100s: exit code %d, says %q; want %q", c.args, code, cmd.err.String(), c.says)
		}
	}
}

func TestCountNotReachedIsATimeout(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	for want, args := range map[int][]string{3: {"--count", "1"}, 0: nil} {
		longer(t, func(timeout string) bool {
			cmd := start(t, nil, with(m.edge, slices.Concat([]string{"sub", "room/1/chat", "--timeout", timeout}, args)...)...)
			cmd.wait()
			if !strings.Contains(cmd.err.String(), "subscribed to") {
				return false // not subscribed in time: a timeout, whatever was asked for
			}
			if cmd.code != want || want == 3 && !strings.Contains(cmd.err.String(), "0 messages arrived") {
				t.Errorf("%q: exit code %d, says %q", args, cmd.code, cmd.err.String())
			}
			return true
		})
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, name := range []string{
		"dev", "pub", "sub", "history", "rank", "replay", "mesh", "version", "disconnect", "rebalance", "top", "doctor",
		"namespace put", "namespace set", "namespace get", "namespace list", "namespace delete", "model put", "model list", "model delete", "model rollback",
		"session set-profile", "auth explain", "context add", "apply",
	} {
		out := must(t, "", append(strings.Fields(name), "--help")...)
		if !strings.Contains(out, "    pushmesh "+name) && !strings.Contains(out, "make "+name) {
			t.Errorf("no example in the help of %s:\n%s", name, out)
		}
	}
	if out := must(t, ""); !strings.Contains(out, "Exit codes") {
		t.Errorf("without arguments: %s", out)
	}
}
