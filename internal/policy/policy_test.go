package policy

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func ns(prefix string, p *pushmeshv1.Policy) *pushmeshv1.Namespace {
	return &pushmeshv1.Namespace{Prefix: prefix, Policy: p}
}

func TestBuiltin(t *testing.T) {
	for _, b := range Builtin() {
		if err := Check(b); err != nil {
			t.Errorf("%s: %v", b.GetPrefix(), err)
		}
		if !b.GetBuiltin() {
			t.Errorf("%s is not marked as built in", b.GetPrefix())
		}
	}
	table := NewTable(nil)
	for _, c := range []struct {
		topic     string
		prefix    string
		durable   bool
		retention time.Duration
	}{
		{"global/news", "global", true, 24 * time.Hour},
		{"room/1/chat", "room", true, 24 * time.Hour},
		{"user/7", "user", true, 7 * 24 * time.Hour},
		{"users/7", Default, false, 24 * time.Hour},
		{"x", Default, false, 24 * time.Hour},
		{"$dead/room", Dead, true, 7 * 24 * time.Hour},
		{"$deadly/room", Default, false, 24 * time.Hour},
	} {
		p := table.For(c.topic)
		if p.Prefix != c.prefix || p.Durable != c.durable || p.Retention != c.retention {
			t.Errorf("%s: %+v", c.topic, p)
		}
	}
}

func TestDefaultsAreApplied(t *testing.T) {
	p := NewTable([]*pushmeshv1.Namespace{ns("a/b", &pushmeshv1.Policy{Durable: true})}).For("a/b/c")
	want := Policy{
		Prefix: "a/b", Durable: true, Retention: DefaultRetention, AckTimeout: DefaultAckTimeout, DedupeWindow: DefaultDedupeWindow,
		MaxRedeliveries: DefaultMaxRedeliveries, MaxAttempts: DefaultMaxAttempts, DeadLetterTopic: "$dead/a/b", MaxPayload: DefaultMaxPayload,
		ClientPresenceMembers: DefaultClientPresenceMembers,
		Claims:                p.Claims, // see TestDefaultsOfClaims
	}
	if *p != want {
		t.Errorf("got %+v, want %+v", *p, want)
	}
	none := NewTable([]*pushmeshv1.Namespace{ns("a", &pushmeshv1.Policy{MaxRedeliveries: proto.Uint32(0)})}).For("a")
	if none.MaxRedeliveries != 0 {
		t.Errorf("max_redeliveries 0 became %d", none.MaxRedeliveries)
	}
}

func TestStoredNamespaceReplacesBuiltin(t *testing.T) {
	table := NewTable([]*pushmeshv1.Namespace{
		ns("room", &pushmeshv1.Policy{Durable: false}),
		ns(Default, &pushmeshv1.Policy{Durable: true}),
	})
	if table.For("room/1").Durable || !table.For("anything").Durable || !table.For("user/1").Durable {
		t.Error("stored namespaces must replace the built-in ones of the same prefix, and only these")
	}
}

func TestCheckReportsEveryFault(t *testing.T) {
	err := Check(ns("a//b", &pushmeshv1.Policy{
		Retention:       durationpb.New(400 * 24 * time.Hour),
		DedupeWindow:    durationpb.New(25 * time.Hour),
		AckTimeout:      durationpb.New(-time.Second),
		MaxPayload:      2 << 20,
		DeadLetterTopic: "a/#",
		Overflow:        wirev1.Overflow(99),
	}))
	for _, name := range []string{"prefix", "retention", "dedupe_window", "ack_timeout", "max_payload", "dead_letter_topic", "overflow"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not reported in: %v", name, err)
		}
	}
	for name, bad := range map[string]*pushmeshv1.Namespace{
		"nil": nil, "own": ns("$x", &pushmeshv1.Policy{}), "below": ns("$dead/room", &pushmeshv1.Policy{}), "wildcard": ns("a/+", &pushmeshv1.Policy{}), "no policy": ns("a", nil),
		"long":         ns(strings.Repeat("x", 250), &pushmeshv1.Policy{}),
		"bad duration": ns("a", &pushmeshv1.Policy{Retention: &durationpb.Duration{Seconds: 1, Nanos: -1}}),
	} {
		if Check(bad) == nil {
			t.Errorf("%s passed", name)
		}
	}
}

// For agrees with asking every prefix in turn.
func TestForIsTheLongestPrefix(t *testing.T) {
	level := rapid.SampledFrom([]string{"a", "b", "room", "user"})
	join := func(t *rapid.T, label string) string {
		return strings.Join(rapid.SliceOfN(level, 1, 4).Draw(t, label), "/")
	}
	rapid.Check(t, func(t *rapid.T) {
		prefixes := []string{"global", "room", "user"}
		var all []*pushmeshv1.Namespace
		for range rapid.IntRange(0, 6).Draw(t, "namespaces") {
			p := join(t, "prefix")
			prefixes = append(prefixes, p)
			all = append(all, ns(p, &pushmeshv1.Policy{}))
		}
		name, want := join(t, "topic"), Default
		best := 0
		for _, p := range prefixes {
			if topic.Under(p, name) && len(p) > best {
				best, want = len(p), p
			}
		}
		if got := NewTable(all).For(name).Prefix; got != want {
			t.Fatalf("For(%q) = %q, want %q of %q", name, got, want, prefixes)
		}
	})
}

func TestForAllocatesNothing(t *testing.T) {
	table := NewTable(nil)
	if n := testing.AllocsPerRun(100, func() { table.For("room/1/2/3") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKindsOfEventsThatAreDurable(t *testing.T) {
	ns := func(prefix string, durable bool) *pushmeshv1.Namespace {
		return &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: durable}}
	}
	every := events.Of(events.All()...)
	for want, namespaces := range map[events.Mask][]*pushmeshv1.Namespace{
		0:                                    {ns(Default, true)},
		events.Of(events.Disconnect):         {ns("$events/disconnect", true)},
		events.Of(events.Subscribe):          {ns("$events/subscribe/room", true), ns("$events/nothing", true)},
		every &^ events.Of(events.Delivered): {ns("$events", true), ns("$events/delivered", false)},
		every:                                {ns("$events", true), ns("$events/delivered", false), ns("$events/delivered/room", true)},
	} {
		for _, n := range namespaces {
			if err := Check(n); err != nil {
				t.Error(err)
			}
		}
		if got := NewTable(namespaces).DurableEvents(); got != want {
			t.Errorf("%v: %b, want %b", namespaces, got, want)
		}
	}
}
