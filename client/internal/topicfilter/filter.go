// Package topicfilter says which topics a filter with wildcards is for.
package topicfilter

import (
	"strings"
	"unicode/utf8"
)

// MaxBytes is the most bytes a topic or filter may have.
const MaxBytes = 255

// Wild reports whether a filter has a wildcard.
func Wild(filter string) bool { return strings.ContainsAny(filter, "+#") }

// Fault says why f can't be a filter; empty: it can.
func Fault(f string) string {
	if f == "" || len(f) > MaxBytes || !utf8.ValidString(f) {
		return "1 to 255 bytes of UTF-8"
	}
	levels := strings.Split(f, "/")
	for i, l := range levels {
		switch {
		case l == "":
			return "empty level"
		case len(l) > 1 && Wild(l):
			return "a wildcard is a whole level"
		case l == "#" && i < len(levels)-1:
			return "# is the last level"
		}
	}
	return ""
}

// Match reports whether a valid filter matches a topic. "a/#" matches "a" too; a wildcard in the
// first level does not match a level that starts with "$".
func Match(filter, topic string) bool {
	if topic == "" || topic[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	for {
		fl, frest, fmore := strings.Cut(filter, "/")
		if fl == "#" {
			return true
		}
		tl, trest, tmore := strings.Cut(topic, "/")
		if fl != "+" && fl != tl {
			return false
		}
		switch {
		case !fmore && !tmore:
			return true
		case !tmore:
			return frest == "#"
		case !fmore:
			return false
		}
		filter, topic = frest, trest
	}
}
