package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

var shut = &pushmeshv1.Policy{ClientSubscribe: pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE}

func TestBars(t *testing.T) {
	table := NewTable([]*pushmeshv1.Namespace{ns("a", shut), ns("a/open", &pushmeshv1.Policy{}), ns("x/y", shut), ns("$dead", shut)})
	for filter, want := range map[string]string{
		"a": "a", "a/1": "a", "a/open": "", "a/open/1": "", "a/open/#": "", "a/+": "a", "a/#": "a", "+/open": "", "+/1": "a", "+/+": "a", "#": "a",
		"ab": "", "ab/#": "", "b/#": "", "x": "", "x/+": "x/y", "x/y/#": "x/y", "+/y": "a", "+/y/+/z": "a", "+": "a", "$dead/#": "$dead", "room/#": "", "$events/#": "",
	} {
		why := table.Bars(filter)
		if got := why != nil; got != (want != "") || got && !strings.Contains(why.Error(), "namespace:") {
			t.Errorf("%s: %v, want %q", filter, why, want)
		}
		if strings.Count(filter, "+")+strings.Count(filter, "#") == 0 && want != "" && !strings.Contains(why.Error(), "namespace:"+want+",") {
			t.Errorf("%s: %v, want %q", filter, why, want)
		}
	}
	if table.Barred() != 3 || NewTable(nil).Barred() != 0 || NewTable(nil).Bars("#") != nil {
		t.Error("barred without a rule")
	}
	if why := table.BarsHistory("a/1"); why != nil {
		t.Error(why)
	}
	live := NewTable([]*pushmeshv1.Namespace{ns("a", &pushmeshv1.Policy{ClientHistory: pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE})})
	if live.Bars("a/1") != nil || live.BarsHistory("a/1") == nil || live.BarsHistory("#") == nil || live.BarsHistory("b/#") != nil {
		t.Error("another rule than the one about history applies, or none")
	}
}

// Where everything is barred but for some namespaces, those are not.
func TestBarsByDefault(t *testing.T) {
	table := NewTable([]*pushmeshv1.Namespace{ns(Default, shut)})
	for filter, barred := range map[string]bool{"x": true, "x/#": true, "#": true, "+": true, "+/1": true, "room/#": false, "room/1": false, "user/+/inbox": false, "$dead/#": false} {
		if got := table.Bars(filter) != nil; got != barred {
			t.Errorf("%s: %v", filter, got)
		}
	}
}

func TestCheckKnowsTheRulesAboutClients(t *testing.T) {
	for _, p := range []*pushmeshv1.Policy{{ClientSubscribe: 2}, {ClientHistory: 2}, {ClientSubscribe: -1}} {
		if err := Check(ns("a", p)); err == nil || !strings.Contains(err.Error(), "is not known") {
			t.Errorf("%v: %v", p, err)
		}
		if why := NewTable([]*pushmeshv1.Namespace{ns("a", p)}).Refuses("a/1"); why == nil {
			t.Errorf("%v: served by a program that does not understand it", p)
		}
	}
}

// A filter is barred exactly where one of the topics that it matches is: each topic is asked for
// by itself, with a name among them at every level that no namespace has.
func TestBarsIsThatOfSomeTopic(t *testing.T) {
	names := []string{"a", "b", "nobody"}
	var topics []string
	for level, last := 0, []string{""}; level < 4; level++ {
		var next []string
		for _, before := range last {
			for _, name := range names {
				next = append(next, strings.TrimPrefix(before+"/"+name, "/"))
			}
		}
		topics, last = append(topics, next...), next
	}
	levels := func(t *rapid.T, what string, most int, from ...string) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(from), 1, most).Draw(t, what), "/")
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []*pushmeshv1.Namespace
		for range rapid.IntRange(1, 5).Draw(t, "namespaces") {
			p := &pushmeshv1.Policy{}
			if rapid.Bool().Draw(t, "shut") {
				p = shut
			}
			prefix := levels(t, "prefix", 3, "a", "b")
			if rapid.IntRange(0, 4).Draw(t, "default") == 0 {
				prefix = Default
			}
			all = append(all, ns(prefix, p))
		}
		table := NewTable(all)
		filter := levels(t, "filter", 3, "a", "b", "+", "nobody")
		if rapid.Bool().Draw(t, "rest") {
			filter = strings.TrimPrefix(filter+"/#", "/")
		}
		want := false
		for _, name := range topics {
			want = want || topic.Contains(filter, name) && table.For(name).Barred != nil
		}
		if got := table.Bars(filter) != nil; got != want {
			t.Fatalf("%s of %v: %v, want %v", filter, all, got, want)
		}
	})
}
