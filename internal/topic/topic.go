// Package topic knows the grammar of topics and filters, matches the one against the
// other, and hashes topics to shards.
package topic

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxLen is the most bytes a topic or filter may have.
const MaxLen = 255

// Shards is the fixed number of shards that topics hash to. It never changes: stored data depends
// on it.
const Shards = 1024

// ErrBad is wrapped by every error of Check and CheckFilter; trying again can't help.
var ErrBad = errors.New("bad topic")

// Check says what is wrong with t as a topic: 1 to 255 bytes of UTF-8, levels separated
// by "/", no empty level, no control character, no wildcard.
func Check(t string) error {
	if err := checkText(t); err != nil {
		return err
	}
	if strings.ContainsAny(t, "+#") {
		return fmt.Errorf("%w: a topic can't have wildcards (+ or #)", ErrBad)
	}
	return nil
}

// CheckFilter says what is wrong with f as a filter: a topic in which a whole level may be "+",
// and the last one "#".
func CheckFilter(f string) error {
	if err := checkText(f); err != nil {
		return err
	}
	for rest, last := f, false; !last; {
		var level string
		level, rest, last = cut(rest)
		if len(level) > 1 && strings.ContainsAny(level, "+#") {
			return fmt.Errorf("%w: a wildcard must be a whole level", ErrBad)
		}
		if level == "#" && !last {
			return fmt.Errorf("%w: # must be the last level", ErrBad)
		}
	}
	return nil
}

func checkText(t string) error {
	switch {
	case t == "":
		return fmt.Errorf("%w: empty", ErrBad)
	case len(t) > MaxLen:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrBad, len(t), MaxLen)
	case !utf8.ValidString(t):
		return fmt.Errorf("%w: not UTF-8", ErrBad)
	case t[0] == '/' || t[len(t)-1] == '/' || strings.Contains(t, "//"):
		return fmt.Errorf("%w: empty level", ErrBad)
	}
	for _, r := range t {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return fmt.Errorf("%w: control character %U", ErrBad, r)
		}
	}
	return nil
}

// IsFilter reports whether a valid filter has a wildcard.
func IsFilter(f string) bool { return strings.ContainsAny(f, "+#") }

// Match reports whether a valid filter matches a valid topic. "a/#" matches "a" too; a wildcard in
// the first level does not match a level that starts with "$".
func Match(filter, topic string) bool {
	if topic[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	for {
		fl, frest, flast := cut(filter)
		if fl == "#" {
			return true
		}
		tl, trest, tlast := cut(topic)
		if fl != "+" && fl != tl {
			return false
		}
		switch {
		case flast && tlast:
			return true
		case tlast:
			return frest == "#"
		case flast:
			return false
		}
		filter, topic = frest, trest
	}
}

// Under reports whether topic lies under prefix by whole levels (or is it).
func Under(prefix, topic string) bool {
	return strings.HasPrefix(topic, prefix) && (len(topic) == len(prefix) || topic[len(prefix)] == '/')
}

// members begins the names by which edges tell routers of members of groups. Nothing is published
// to such a name.
const members = "$members/"

// MembersOf is the name of a topic, or a filter, among those by which edges tell routers that they
// have members of groups with it, whose messages go to the edge that dispatches.
func MembersOf(name string) string { return members + name }

// AnnouncedMembers is what an edge says to have members of groups with a filter. Of a very long one
// it is as many levels as there is room for, and all below: the edge is asked for more topics then.
func AnnouncedMembers(filter string) string {
	name := MembersOf(filter)
	if len(name) <= MaxLen {
		return name
	}
	return name[:strings.LastIndexByte(name[:MaxLen-1], '/')+1] + "#"
}

// AnnouncesMembers reports whether a name, or a filter, only says where members of groups are.
func AnnouncesMembers(name string) bool { return strings.HasPrefix(name, members) }

// Shard of a topic, 0 to Shards-1.
func Shard(t string) int { return int(xxhash.Sum64String(t) % Shards) }

// SessionShard is the shard whose owner keeps the session (user, name).
func SessionShard(user, name string) int { return Shard("$session/" + user + "/" + name) }

func cut(s string) (level, rest string, last bool) {
	level, rest, found := strings.Cut(s, "/")
	return level, rest, !found
}

// Meet reports whether a topic may exist that two valid filters both match.
func Meet(a, b string) bool {
	for {
		x, xrest, xlast := cut(a)
		y, yrest, ylast := cut(b)
		switch {
		case x == "#" || y == "#":
			return true
		case x != "+" && y != "+" && x != y:
			return false
		case xlast || ylast:
			return xlast && ylast || xlast && yrest == "#" || ylast && xrest == "#"
		}
		a, b = xrest, yrest
	}
}
