package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

// TestFirstHourMesh has each of these meet a mesh that works.
func TestFirstHourMesh(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	norank := filepath.Join(t.TempDir(), "rank.json")
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(norank, []byte(`{"window": "1s"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte(`{"expression": {"expression": "features.x * "}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const never = " (trying the same again will not help)\n"
	const unkept = "nosuch/x is ephemeral, because no durable namespace covers it: its messages are not stored (pushmesh namespace put nosuch --durable changes that)\n"
	must(t, "", with(m.router, "namespace", "put", "ticks", "--overflow", "conflate")...)
	must(t, "", with(m.router, "namespace", "put", "orders", "--durable", "--retention", "2d")...)
	must(t, "", with(m.router, "namespace", "put", "state", "--durable", "--keep", "last")...)
	const table = "PREFIX  DURABLE  RETENTION  ACK TIMEOUT  OVERFLOW  CLIENTS  VERSION  BUILT IN\n"
	for _, w := range []wrong{
		{"publish to no namespace", with(m.router, "pub", "nosuch/x", "hello"), 0, "-\tID\n", unkept},
		{"publish to a namespace that is ephemeral", with(m.router, "pub", "ticks/x", "hello"), 0, "-\tID\n", ""},
		{"history of an ephemeral topic", with(m.router, "history", "nosuch/x"), 0, "", unkept},
		{"history of a namespace that is ephemeral", with(m.router, "history", "ticks/x"), 0, "", "ticks/x is ephemeral, because namespace ticks is not durable: its messages are not stored\n"},
		{"history of an empty topic", with(m.router, "history", "room/9/chat"), 0, "", ""},
		{
			"put without the flags of before", with(m.router, "namespace", "put", "orders", "--client-publish"), 2, "",
			"pushmesh: namespace orders is durable, and this command would make it ephemeral: messages would no longer be stored. " +
				"Give --durable too, or use pushmesh namespace set, which changes only what you name, or confirm with --force\n",
		},
		{
			"put says what changes", with(m.router, "namespace", "put", "orders", "--durable", "--client-publish"), 0,
			table + "orders  true     -          -            default   granted  N        false\n", "orders: retention 48h0m0s -> default, client_publish false -> true\n",
		},
		{
			"set merges", with(m.router, "namespace", "set", "orders", "--retention", "7d", "--client-publish=false"), 0,
			table + "orders  true     168h0m0s   -            default   granted  N        false\n", "orders: retention default -> 168h0m0s, client_publish true -> false\n",
		},
		{
			"set bars clients", with(m.router, "namespace", "set", "orders", "--client-subscribe", "none", "--client-history", "none"), 0,
			table + "orders  true     168h0m0s   -            default   none     N        false\n",
			"orders: client_subscribe default -> none, client_history default -> none\n",
		},
		{
			"set lets clients in again, but for history", with(m.router, "namespace", "set", "orders", "--client-subscribe", "granted"), 0,
			table + "orders  true     168h0m0s   -            default   live     N        false\n", "orders: client_subscribe none -> default\n",
		},
		{
			"set lets clients read again", with(m.router, "namespace", "set", "orders", "--client-history", "granted"), 0,
			table + "orders  true     168h0m0s   -            default   granted  N        false\n", "orders: client_history none -> default\n",
		},
		{
			"set names nothing", with(m.router, "namespace", "set", "orders"), 2, "",
			"pushmesh: give at least one flag, like --retention 168h (pushmesh namespace set --help lists them)\n",
		},
		{
			"set makes ephemeral", with(m.router, "namespace", "set", "orders", "--durable=false"), 2, "",
			"pushmesh: namespace orders is durable, and this command would make it ephemeral: messages would no longer be stored. " +
				"Give --durable too, or use pushmesh namespace set, which changes only what you name, or confirm with --force\n",
		},
		{
			"set makes ephemeral with --force", with(m.router, "namespace", "set", "orders", "--durable=false", "--force"), 0,
			table + "orders  false    168h0m0s   -            default   granted  N        false\n", "orders: durable true -> false\n",
		},
		{
			"put without --keep last of before", with(m.router, "namespace", "put", "state", "--durable", "--retention", "7d"), 2, "",
			"pushmesh: topics of namespace state keep their last messages, and this command would delete these. " +
				"Give --keep last too, or use pushmesh namespace set, which changes only what you name, or confirm with --force\n",
		},
		{
			"set merges beside --keep last", with(m.router, "namespace", "set", "state", "--retention", "7d"), 0,
			table + "state   true     168h0m0s   -            default   granted  N        false\n", "state: retention default -> 168h0m0s\n",
		},
		{
			"set ends --keep last with --force", with(m.router, "namespace", "set", "state", "--keep", "retention", "--force"), 0,
			table + "state   true     168h0m0s   -            default   granted  N        false\n", "state: keep last -> default\n",
		},
		{
			"a wrong expression", with(m.router, "sub", "room/1/chat", "--grpc", "--where", "payload.total > "), 1, "",
			"pushmesh: INVALID_ARGUMENT: where: line 1, column 17: the expression ends too early" + never,
		},
		{
			"a wrong expression of a policy", with(m.router, "namespace", "put", "news", "--rank", bad), 1, "",
			"pushmesh: INVALID_ARGUMENT: rank: expression: line 1, column 14: the expression ends too early" + never,
		},
		{
			"--rank without a scorer", with(m.router, "namespace", "put", "news", "--rank", norank), 1, "",
			"pushmesh: INVALID_ARGUMENT: rank: no scorer: set one of weighted, expression, embedding and model" + never,
		},
		{
			"presence of no namespace", with(m.router, "presence", "list", "nosuch/x"), 1, table0,
			"pushmesh: CONFLICT: no namespace covers nosuch/x, so that it has no presence: make one (pushmesh namespace set PREFIX --presence)" + never,
		},
		{
			"presence not on", with(m.router, "presence", "list", "room/1/chat"), 1, table0,
			"pushmesh: CONFLICT: namespace room of room/1/chat has no presence: switch it on (pushmesh namespace set room --presence)" + never,
		},
		{
			"watching presence that is not on", with(m.router, "presence", "watch", "room/1/chat"), 1, "",
			"pushmesh: CONFLICT: namespace room of room/1/chat has no presence: switch it on (pushmesh namespace set room --presence)" + never,
		},
		{
			"dlq replay nope", with(m.router, "dlq", "replay", "nope"), 0, "0 replayed\n",
			"pushmesh: no dead letter's topic matches \"nope\" (pushmesh dlq list shows all)\n",
		},
		{
			"dlq discard of an id that is not there", with(m.router, "dlq", "discard", "--id", "17"), 0, "0 discarded\n",
			"pushmesh: there is no dead letter with such an id (pushmesh dlq list shows all)\n",
		},
	} {
		cmd := ran(t, "", w.args...)
		cmd.wait()
		got := &command{t: t, ended: cmd.ended, code: cmd.code}
		_, _ = got.out.Write([]byte(steady(cmd.out.String())))
		_, _ = got.err.Write([]byte(steady(cmd.err.String())))
		w.check(t, got)
	}
}

// TestFirstHourClientsMayNotPublish has a client publish where the namespace does not let it.
func TestFirstHourClientsMayNotPublish(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	ann, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{m.addrs.Edge}, ClientID: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ann.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for topic, prefix := range map[string]string{"room/1/chat": "room", "nosuch/x": "default"} {
		want := "pushmesh: FORBIDDEN: namespace " + prefix + " does not let clients publish: give it client_publish (pushmesh namespace set " + prefix + " --client-publish)"
		if _, err := ann.Publish(ctx, pushmesh.ClientMessage{Topic: topic, Payload: []byte("hello")}); err == nil || err.Error() != want {
			t.Errorf("%s: says %v, want %q", topic, err, want)
		}
	}
}

// table0 is a table of presence with nobody in it.
const table0 = ""

var (
	anyID      = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f-]{27}\b`)
	lagging    = regexp.MustCompile(`the change is stored, but .*\n`) // where the machine is slow
	anyVersion = regexp.MustCompile(`  [0-9]+ +(true|false)\n`)
)

// steady is output without what is another at every run.
func steady(text string) string {
	text = lagging.ReplaceAllString(text, "")
	return anyVersion.ReplaceAllString(anyID.ReplaceAllString(text, "ID"), "  N        $1\n")
}

// TestFirstHourEphemeralSubscriptions has sub ask an ephemeral topic for what only a log gives.
func TestFirstHourEphemeralSubscriptions(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	const note = "nosuch/x is ephemeral, because no durable namespace covers it: it has no log, and --ack, --from, --last and --session have no effect (pushmesh namespace put PREFIX --durable makes it durable)\n"
	for row, flags := range map[string][]string{
		"--ack": {"--ack"}, "--from earliest": {"--from", "earliest"}, "--from 7": {"--from", "7"}, "--last": {"--last", "3"}, "--session": {"--session", "s", "--client-id", "c"}, "live": nil,
	} {
		want := note + "subscribed to nosuch/x\n"
		if flags == nil {
			want = "subscribed to nosuch/x\n"
		}
		cmd := start(t, nil, with(m.edge, append([]string{"sub", "nosuch/x"}, flags...)...)...)
		cmd.says("subscribed to")
		cmd.cancel()
		cmd.wait()
		if cmd.err.String() != want && cmd.err.String() != "subscribed to nosuch/x\n"+strings.TrimSuffix(want, "subscribed to nosuch/x\n") {
			t.Errorf("%s: says %q, want %q", row, cmd.err.String(), want)
		}
	}
}

// TestFirstHourFutureSeq resumes from a seq that the log does not have: what is retained and what
// comes is delivered.
func TestFirstHourFutureSeq(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	must(t, "1\n2\n", with(m.router, "pub", "room/1/chat", "--lines")...)
	sub := start(t, nil, with(m.edge, "sub", "room/1/chat", "--from", "99", "--count", "3", "--timeout", patience.String())...)
	sub.says("room/1/chat: the log does not have the requested position; continuing with the messages that it has\n")
	sub.says("room/1/chat\t2\t2\n")
	must(t, "", with(m.router, "pub", "room/1/chat", "3")...)
	if code := sub.wait(); code != 0 || sub.out.String() != "room/1/chat\t1\t1\nroom/1/chat\t2\t2\nroom/1/chat\t3\t3\n" {
		t.Errorf("exit code %d, out %q, err %q", code, sub.out.String(), sub.err.String())
	}
}
