package events

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/topic"
)

func TestWantedKindsOfAFilter(t *testing.T) {
	every := Of(All()...)
	for filter, want := range map[string]Mask{
		"$events/connect": Of(Connect), "$events/disconnect/#": Of(Disconnect), "$events/subscribe/room/+": Of(Subscribe),
		"$events/#": every, "$events/+": every, "$events/+/room/#": every, "$events": 0, "$events/other": 0, "room/#": 0, "#": 0, "+/connect": 0, "$eventsx/connect": 0,
	} {
		if got := KindsOf(filter); got != want {
			t.Errorf("%s wants %b, not %b", filter, got, want)
		}
	}
	if every.Has(0) || every&MaskSet != 0 {
		t.Error("Told stands for a kind")
	}
}

func TestTopicsAreTopics(t *testing.T) {
	for _, k := range All() {
		for _, ns := range []string{"room", "default", "$dead", strings.Repeat("a", 249), strings.Repeat("a/", 124) + "b", strings.Repeat("ä", 124)} {
			at := k.In(ns)
			if err := topic.Check(at); err != nil || !topic.Match(k.Topic()+"/#", at) || !IsEvent(at) || !KindsOf(at).Has(k) {
				t.Errorf("%s of namespace %.20q: %v", at, ns, err)
			}
		}
	}
	if got := Subscribe.In("room"); got != "$events/subscribe/room" {
		t.Error(got)
	}
}
