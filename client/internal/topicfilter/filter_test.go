package topicfilter

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a/b", false},
		{"a/b", "a", false},
		{"a/+", "a/b", true},
		{"a/+", "a", false},
		{"a/+", "a/b/c", false},
		{"+", "a", true},
		{"+/b", "a/b", true},
		{"a/#", "a", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"#", "a/b", true},
		{"a/+/#", "a/b", true},
		{"a/+/#", "a", false},
		{"#", "$dead/x", false},
		{"+/x", "$dead/x", false},
		{"$dead/#", "$dead/x", true},
		{"$dead/+", "$dead/x", true},
		{"#", "", false},
	} {
		if got := Match(c.filter, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.topic, got)
		}
	}
}

func TestFault(t *testing.T) {
	for _, good := range []string{"a", "a/b", "+", "#", "a/+/b/#", strings.Repeat("x", 255)} {
		if why := Fault(good); why != "" {
			t.Errorf("%q: %s", good, why)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "a+", "a/#/b", "##", "\xff", strings.Repeat("x", 256)} {
		if Fault(bad) == "" {
			t.Errorf("%q passes", bad)
		}
	}
}
