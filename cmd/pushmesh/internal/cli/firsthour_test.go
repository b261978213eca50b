package cli

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// The tables of firsthour*_test.go are wrong uses of the command, tried as a new user would, with
// all that it must say: what is wrong, with the value and the limit, and what to do. Those of the
// SDK are in client/firsthour_test.go.

// wrong is one of them.
type wrong struct {
	row  string
	args []string
	code int
	out  string // on standard output
	err  string // on standard error
}

func (w wrong) check(t *testing.T, cmd *command) {
	t.Helper()
	if code := cmd.wait(); code != w.code || cmd.out.String() != w.out || afterUsage(cmd.err.String()) != w.err {
		t.Errorf("%s: %q\nends with %d and says %q, then %q\nmust end with %d and say %q, then %q", w.row, w.args, code, cmd.out.String(), afterUsage(cmd.err.String()), w.code, w.out, w.err)
	}
}

// afterUsage is what follows the help that goes before a fault of the command line.
func afterUsage(text string) string {
	if at := strings.LastIndex(text, "\npushmesh: "); at >= 0 && strings.HasPrefix(text, "Usage: ") {
		return text[at+1:]
	}
	return text
}

// TestFirstHourUsage needs no mesh.
func TestFirstHourUsage(t *testing.T) {
	claims := filepath.Join(t.TempDir(), "claims.json")
	if err := os.WriteFile(claims, []byte(`{"ttl": 20}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const more = " (pushmesh COMMAND --help says more)\n"
	for _, w := range []wrong{
		{"--router without port", []string{"pub", "a", "x", "--router", "127.0.0.1"}, 2, "", "pushmesh: --router \"127.0.0.1\": it needs host:port, like 127.0.0.1:7401\n"},
		{"--router with a scheme", []string{"pub", "a", "x", "--router", "http://127.0.0.1:7401"}, 2, "", "pushmesh: --router \"http://127.0.0.1:7401\": it needs host:port, like 127.0.0.1:7401\n"},
		{"--edge without port", []string{"sub", "a", "--edge", "127.0.0.1"}, 2, "", "pushmesh: --edge \"127.0.0.1\": it needs host:port, like 127.0.0.1:7400\n"},
		{"port beyond the last one", []string{"pub", "a", "x", "--router", "127.0.0.1:74010"}, 2, "", "pushmesh: --router \"127.0.0.1:74010\": it needs host:port, like 127.0.0.1:7401\n"},
		{"--edge without port, of replay", []string{"replay", claims, "--edge", "127.0.0.1"}, 2, "", "pushmesh: --edge \"127.0.0.1\": it needs host:port, like 127.0.0.1:7400\n"},
		{"an origin that is none, of dev", []string{"dev", "--websocket-origins", "localhost:5173"}, 2, "", "pushmesh: --websocket-origins: \"localhost:5173\": an origin is scheme://host or scheme://host:port, such as https://app.example.com, https://*.example.com or capacitor://localhost; * is all, and same-host the host that the request names\n"},
		{"unknown host", []string{"pub", "a", "x", "--router", "nowhere.invalid:7401"}, 1, "", "pushmesh: UNAVAILABLE: no connection: the host nowhere.invalid is not known (trying again may help)\n"},
		{"nobody listens", []string{"pub", "a", "x", "--router", "127.0.0.1:1"}, 1, "", "pushmesh: UNAVAILABLE: no connection: dial tcp 127.0.0.1:1: connect: connection refused (trying again may help)\n"},
		{
			"--retention in days, a typing error",
			[]string{"namespace", "put", "a", "--retention", "7 days"},
			2, "",
			"pushmesh: --retention: \"7 days\" is not a duration: write it like 500ms, 90s, 10m, 24h or 7d" + more,
		},
		{"--ttl below 0", []string{"pub", "a", "x", "--ttl", "-5s"}, 2, "", "pushmesh: --ttl is -5s, it must be above 0\n"},
		{"--ttl=-5s", []string{"pub", "a", "x", "--ttl=-5s"}, 2, "", "pushmesh: --ttl is -5s, it must be above 0\n"},
		{
			"claims JSON with a number for a duration",
			[]string{"namespace", "put", "a", "--claims", claims},
			2, "",
			"pushmesh: " + claims + ": ttl: 20 is not a duration: write it like \"20s\"\n",
		},
		{
			"--deliver-at yesterday",
			[]string{"pub", "a", "x", "--deliver-at", "yesterday"},
			2, "",
			"pushmesh: --deliver-at: \"yesterday\" is not a time: write it like 2027-01-31T08:00:00Z" + more,
		},
		{"health without http://", []string{"health", "127.0.0.1:27480"}, 2, "", "pushmesh: \"127.0.0.1:27480\" is not a URL: write it like http://127.0.0.1:27480/readyz\n"},
		{"nosuchcmd", []string{"nosuchcmd"}, 2, "", "pushmesh: there is no command \"nosuchcmd\": pushmesh --help lists them\n"},
		{"a typing error in a command", []string{"sbu", "a"}, 2, "", "pushmesh: there is no command \"sbu\": did you mean \"sub\"?\n"},
		{"no such command of namespace", []string{"namespace", "drop"}, 2, "", "pushmesh: there is no command \"drop\": pushmesh --help lists them\n"},
		{
			"--session with --from",
			[]string{"sub", "a", "--session", "s", "--client-id", "c", "--from", "earliest"},
			2, "",
			"pushmesh: --from earliest and --session exclude each other: a session begins at its stored positions\n",
		},
		{
			"--session with --last",
			[]string{"sub", "a", "--session", "s", "--client-id", "c", "--last", "3"},
			2, "",
			"pushmesh: --last 3 and --session exclude each other: a session begins at its stored positions\n",
		},
		{"--session without --client-id", []string{"sub", "a", "--session", "s"}, 2, "", "pushmesh: a session needs --session (its name) and --client-id (its owner)\n"},
		{"--last with --from", []string{"sub", "a", "--last", "3", "--from", "earliest"}, 2, "", "pushmesh: --from and --last exclude each other\n"},
		{
			"--rank-top-k with --from",
			[]string{"sub", "a", "--rank-top-k", "1", "--from", "7"},
			2, "",
			"pushmesh: --rank-top-k does not support --from 7: use live or earliest, or --session\n",
		},
	} {
		w.check(t, start(t, strings.NewReader(""), w.args...))
	}
}

// TestFirstHourWrongPorts has each command meet a port of something else.
func TestFirstHourWrongPorts(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	at := web.Listener.Addr().String()
	for _, w := range []wrong{
		{
			"--router is the edge's port",
			[]string{"pub", "a", "x", "--router", m.addrs.Edge},
			1, "",
			"pushmesh: UNSUPPORTED: " + m.addrs.Edge + " accepts connections but does not speak gRPC: is it a router's port (7401)? (trying the same again will not help)\n",
		},
		{
			"--router is the HTTP port",
			[]string{"history", "a", "--router", at},
			1, "",
			"pushmesh: UNSUPPORTED: " + at + " accepts connections but does not speak gRPC: is it a router's port (7401)? (trying the same again will not help)\n",
		},
		{
			"--router is the edge's port, of top",
			[]string{"top", "--once", "--router", m.addrs.Edge},
			1, "",
			"pushmesh: UNSUPPORTED: " + m.addrs.Edge + " accepts connections but does not speak gRPC: is it a router's port (7401)? (trying the same again will not help)\n",
		},
	} {
		w.check(t, start(t, strings.NewReader(""), w.args...))
	}
	doctor := start(t, nil, "doctor", "--router", m.addrs.Edge)
	if code := doctor.wait(); code != 1 || !strings.Contains(doctor.out.String(), m.addrs.Edge+" accepts connections but does not speak gRPC: is it a router's port (7401)?") {
		t.Errorf("doctor at the edge's port ends with %d and says %q", code, doctor.out.String())
	}
	for row, addr := range map[string]string{"the router's port": m.addrs.Router, "the HTTP port": at} {
		says := "does not speak pushmesh"
		if addr == at {
			says = "does not answer"
		}
		sub := start(t, nil, "sub", "a", "--edge", addr)
		sub.says("trying again: " + addr + " accepts connections but " + says + ": is it an edge's port (7400)?\n")
		sub.cancel()
		if code := sub.wait(); code != 0 {
			t.Errorf("sub at %s: exit code %d", row, code)
		}
	}
	longer(t, func(timeout string) bool {
		cmd := start(t, nil, "sub", "a", "--edge", "127.0.0.1:1", "--timeout", timeout)
		const refused = "no connection: dial tcp 127.0.0.1:1: connect: connection refused"
		return cmd.wait() == 3 && cmd.err.String() == "trying again: "+refused+"\npushmesh: timeout: "+timeout+" passed, and not subscribed: "+refused+"\n"
	})
}

// TestFirstHourNoStore has an edge refuse a subscription for now, as it does while the stores'
// database is away.
func TestFirstHourNoStore(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const why = "no store owns shard 294 now: stores answer and own no shards, as they do while their database is away"
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			welcome, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 60_000, MaxFrame: 1 << 20})
			refusal, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: why, Ref: 1, RetryAfterMs: 60_000})
			_, _, _ = wire.Read(c, nil, wire.MaxHello) // Hello
			_, _ = c.Write(welcome)
			_, _, _ = wire.Read(c, nil, wire.MaxHello) // Subscribe
			_, _ = c.Write(refusal)
			_, _, _ = wire.Read(c, nil, wire.MaxHello) // the end
			_ = c.Close()
		}
	}()
	longer(t, func(timeout string) bool {
		cmd := start(t, nil, "sub", "a", "--edge", ln.Addr().String(), "--timeout", timeout)
		return cmd.wait() == 3 && cmd.err.String() == "pushmesh: timeout: "+timeout+" passed, and not subscribed: UNAVAILABLE: "+why+"\n"
	})
}
