package policy

import (
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const keepLast = pushmeshv1.Keep_KEEP_LAST

func keeping(prefix string, p *pushmeshv1.Policy) *pushmeshv1.Namespace {
	return &pushmeshv1.Namespace{Prefix: prefix, Policy: p}
}

func TestWhatCanBeKept(t *testing.T) {
	for name, tt := range map[string]struct {
		ns *pushmeshv1.Namespace
		ok bool
	}{
		"durable":              {keeping("state", &pushmeshv1.Policy{Durable: true, Keep: keepLast}), true},
		"durable, some":        {keeping("state", &pushmeshv1.Policy{Durable: true, Keep: keepLast, MaxKept: 10}), true},
		"ephemeral":            {keeping("state", &pushmeshv1.Policy{Keep: keepLast}), false},
		"the mesh's own":       {keeping("$dead", &pushmeshv1.Policy{Durable: true, Keep: keepLast}), false},
		"for nobody":           {keeping("state", &pushmeshv1.Policy{Durable: true, Keep: keepLast, ClientHistory: pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE}), false},
		"more than can be":     {keeping("state", &pushmeshv1.Policy{Durable: true, Keep: keepLast, MaxKept: MaxMaxKept + 1}), false},
		"a bound without keep": {keeping("state", &pushmeshv1.Policy{Durable: true, MaxKept: 10}), false},
		"an unknown keep":      {keeping("state", &pushmeshv1.Policy{Durable: true, Keep: 2}), false},
	} {
		if err := Check(tt.ns); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := NewTable([]*pushmeshv1.Namespace{keeping("state", &pushmeshv1.Policy{Durable: true, Keep: keepLast})}).For("state/1")
	if !p.KeepLast || p.MaxKept != DefaultMaxKept {
		t.Errorf("keeps %t, at most %d", p.KeepLast, p.MaxKept)
	}
}

func TestWhatAFilterFindsKept(t *testing.T) {
	table := NewTable([]*pushmeshv1.Namespace{
		keeping("a/b", &pushmeshv1.Policy{Durable: true, Keep: keepLast}), keeping("a/b/c", &pushmeshv1.Policy{Durable: true}),
	})
	for filter, want := range map[string]bool{"a/b": true, "a/b/x": true, "a/b/c": false, "a/+": true, "#": true, "a/x/#": false, "+/b/c/#": true, "x": false} {
		if got := table.AnyKeepLast(filter); got != want {
			t.Errorf("%s: %t", filter, got)
		}
	}
}

func TestNamespacesRightUnderAnother(t *testing.T) {
	d := &pushmeshv1.Policy{Durable: true}
	table := NewTable([]*pushmeshv1.Namespace{keeping("a", d), keeping("a/b", d), keeping("a/b/c", d), keeping("a/x/y", d), keeping("ab", d)})
	for prefix, want := range map[string][]string{
		"a": {"a/b", "a/x/y"}, "a/b": {"a/b/c"}, "ab": nil, Default: {"$audit", "$dead", "$events", "a", "ab", "global", "room", "user"},
	} {
		var got []string
		for _, p := range table.Nested(prefix) {
			got = append(got, p.Prefix)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("under %s: %v", prefix, got)
		}
	}
}
