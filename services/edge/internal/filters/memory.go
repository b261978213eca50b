package filters

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/topic"
)

// What is kept takes about so many bytes, as TestMemoryIsEstimated measures.
const (
	useBytes   = 128 // for a subscription, beside the filter's text
	nameBytes  = 640 // for a topic or filter
	levelBytes = 448 // for a level of a filter with wildcards, in each of two indexes
	// programBytes are for a distinct expression, textBytes for a byte of its text, and
	// patternBytes for each regular expression in it, which may be written in few bytes.
	programBytes = 512
	textBytes    = 36
	patternBytes = 80 * expr.MaxPattern
)

// needs is about what one more use of a program for a topic or filter takes, in bytes.
func (r *Registry) needs(filter string, p *program) int64 {
	n := useBytes + len(filter)
	if p.uses == 0 {
		n += programBytes + textBytes*len(p.text) + patternBytes*strings.Count(p.text, "matches")
	}
	if r.filters[filter] == nil {
		n += nameBytes + len(filter)
		if topic.IsFilter(filter) {
			n += 2 * levelBytes * (1 + strings.Count(filter, "/"))
		}
	}
	return int64(n)
}
