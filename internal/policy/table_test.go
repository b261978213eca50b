package policy

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestAnyDurable(t *testing.T) {
	table := NewTable([]*pushmeshv1.Namespace{
		{Prefix: "a/b", Policy: &pushmeshv1.Policy{Durable: true}},
		{Prefix: "room/cursors", Policy: &pushmeshv1.Policy{}},
	})
	for filter, want := range map[string]bool{
		"#": true, "+/x": true, "room/1": true, "room/+": true, "room/cursors": false, "cursor/+": false, "cursor/#": false,
		"a/+": true, "a/#": true, "a/+/c": true, "a/c/#": false, "+": true, "a/b/#": true, "x/+/b": false,
	} {
		if got := table.AnyDurable(filter); got != want {
			t.Errorf("AnyDurable(%q) = %v", filter, got)
		}
	}
	nothing := NewTable([]*pushmeshv1.Namespace{
		{Prefix: "global", Policy: &pushmeshv1.Policy{}}, {Prefix: "room", Policy: &pushmeshv1.Policy{}}, {Prefix: "user", Policy: &pushmeshv1.Policy{}},
	})
	for filter, want := range map[string]bool{"#": false, "+/room": false, "$dead/#": true, "$dead/+": true, "$dead/room": true} {
		if got := nothing.AnyDurable(filter); got != want {
			t.Errorf("AnyDurable(%q) = %v where only dead letters are durable", filter, got)
		}
	}
	all := NewTable([]*pushmeshv1.Namespace{{Prefix: Default, Policy: &pushmeshv1.Policy{Durable: true}}})
	if !all.AnyDurable("cursor/+") {
		t.Error("the default policy is durable")
	}
}
