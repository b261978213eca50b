package pushmesh

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxTopic is the most bytes a topic or filter may have.
const maxTopic = 255

// wild reports whether a filter has a wildcard.
func wild(filter string) bool { return strings.ContainsAny(filter, "+#") }

// checkFilter refuses before the edge has to what can't be a filter.
func checkFilter(f string) error {
	bad := func(why string) error {
		return &Error{Code: wirev1.Code_CODE_BAD_TOPIC, Message: fmt.Sprintf("filter %.40q: %s", f, why)}
	}
	if f == "" || len(f) > maxTopic || !utf8.ValidString(f) {
		return bad("1 to 255 bytes of UTF-8")
	}
	levels := strings.Split(f, "/")
	for i, l := range levels {
		switch {
		case l == "":
			return bad("empty level")
		case len(l) > 1 && wild(l):
			return bad("a wildcard is a whole level")
		case l == "#" && i < len(levels)-1:
			return bad("# is the last level")
		}
	}
	return nil
}

// match reports whether a valid filter matches a topic. "a/#" matches "a" too; a wildcard in the
// first level does not match a level that starts with "$".
func match(filter, topic string) bool {
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
