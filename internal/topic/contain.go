package topic

import "strings"

// Contains reports whether every topic that inner matches is matched by outer too. Both must be
// valid filters; either may be a topic. The cost grows with the bytes of the shorter one.
//
// The answer is exact but for what only the bound of a topic's length makes true: a filter so long
// that hardly a topic fits in MaxLen bytes may be contained where false is returned.
func Contains(outer, inner string) bool {
	if inner[0] == '$' && (outer[0] == '+' || outer[0] == '#') {
		return false
	}
	if inner == "#" {
		inner = "+/#" // the same topics, and no special case below: there is no topic of no level
	}
	for {
		o, orest, olast := cut(outer)
		if o == "#" {
			return true
		}
		i, irest, ilast := cut(inner)
		switch {
		case i == "#": // it matches what ends here, and outer does not
			return false
		case o != "+" && o != i:
			return false
		case olast || ilast:
			return ilast && (olast || orest == "#")
		}
		outer, inner = orest, irest
	}
}

// ContainedIn reports whether every topic that inner matches is matched by one of outers at least.
// All must be valid filters. It is exact as Contains is: where it returns true, it is so.
func ContainedIn(inner string, outers ...string) bool {
	c := NewCover(inner)
	for _, outer := range outers {
		c.Add(outer)
	}
	return c.Whole()
}

// maxLevels is the most levels of a topic or filter.
const maxLevels = (MaxLen + 1) / 2

// Cover gathers which topics of one filter others match, until they match all.
//
// As there are more names of levels than filters hold, filters without "#" are contained in several
// others only where they are contained in one of them. What ends in "#" may be covered by depth:
// "a/#" by "a" and "a/+/#".
type Cover struct {
	inner  string              // without its "#"; "" for "#" alone
	open   bool                // it ended in "#"
	depths [maxLevels + 1]bool // levels more than inner has: topics with so many are matched
	from   int                 // and with so many or more
}

// NewCover begins with nothing matched of what inner, a valid filter, matches.
func NewCover(inner string) Cover {
	c := Cover{inner: inner, from: maxLevels + 1}
	if c.inner, c.open = strings.CutSuffix(inner, "#"); c.open {
		c.inner = strings.TrimSuffix(c.inner, "/")
	}
	return c
}

// Add takes in what outer, a valid filter, matches. It reports whether that is a part of inner's
// topics that counts: all, or all of one depth.
func (c *Cover) Add(outer string) bool {
	if c.inner != "" && c.inner[0] == '$' && (outer[0] == '+' || outer[0] == '#') {
		return false
	}
	rest, ended, whole := skip(outer, c.inner)
	if whole {
		c.from = 0
		return true
	}
	if rest == "" && !ended || !c.open && !ended && rest != "#" {
		return false
	}
	for depth := 0; depth <= maxLevels; depth++ {
		if ended {
			c.depths[depth] = true
			return true
		}
		level, next, last := cut(rest)
		switch level {
		case "#":
			c.from = min(c.from, depth)
			return true
		case "+":
			rest, ended = next, last
		default:
			return false
		}
	}
	return false
}

// skip takes the levels of prefix, which may be "", off a filter that contains them. ended: nothing
// is left; whole: a "#" came before prefix ended; neither, and no rest: it does not contain them.
func skip(filter, prefix string) (rest string, ended, whole bool) {
	for prefix != "" && !ended {
		f, frest, flast := cut(filter)
		p, prest, _ := cut(prefix)
		switch {
		case f == "#":
			return "", false, true
		case f != "+" && f != p:
			return "", false, false
		}
		filter, prefix, ended = frest, prest, flast
	}
	return filter, ended && prefix == "", false
}

// Whole reports whether every topic that inner matches is matched by a filter that was added.
func (c *Cover) Whole() bool {
	if !c.open {
		return c.from == 0 || c.depths[0]
	}
	first := 0
	if c.inner == "" {
		first = 1 // there is no topic of no level
	}
	for depth := first; depth < c.from; depth++ {
		if !c.depths[depth] {
			return false
		}
	}
	return true
}
