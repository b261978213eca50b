package score

import (
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// diversify puts behind what has too many of its kind before it.
type diversify struct {
	of   string // "topic", "header" or "feature"
	key  func(c *Candidate) (key string, has bool)
	most uint32
}

func compileDiversify(d *pushmeshv1.Diversify) (*diversify, error) {
	if d == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	if d.GetAtMost() == 0 {
		return nil, invalid("diversify: at_most must be at least 1")
	}
	kind, name, named := strings.Cut(d.GetKey(), ":")
	switch {
	case d.GetKey() == "topic":
		return &diversify{of: kind, most: d.GetAtMost(), key: func(c *Candidate) (string, bool) { return c.Topic, c.Topic != "" }}, nil
	case kind == "header" && named:
		return &diversify{of: kind, most: d.GetAtMost(), key: func(c *Candidate) (string, bool) { return c.Headers.Get(name) }}, nil
	case kind == "feature" && named:
		return &diversify{of: kind, most: d.GetAtMost(), key: func(c *Candidate) (string, bool) {
			v, has := c.Features.Get(name)
			return strconv.FormatFloat(v, 'g', -1, 64), has
		}}, nil
	}
	return nil, invalid(`diversify: key %.64q must be "topic", "header:NAME" or "feature:NAME"`, d.GetKey())
}

// spread gives ranked places another order: at most so many of one key, then the others.
type spread struct {
	ranked      []Place // not looked at yet
	seen        map[string]uint32
	out, behind []Place
}

func newSpread(ranked []Place) *spread {
	return &spread{ranked: ranked, seen: map[string]uint32{}, out: make([]Place, 0, len(ranked))}
}

// some looks at the next few and reports whether there are more.
func (s *spread) some(d *diversify, candidates []Candidate) (more bool) {
	n := min(len(s.ranked), 2*chunk)
	for _, p := range s.ranked[:n] {
		if key, has := d.key(&candidates[p.Index]); has {
			if s.seen[key]++; s.seen[key] > d.most {
				s.behind = append(s.behind, p)
				continue
			}
		}
		s.out = append(s.out, p)
	}
	s.ranked = s.ranked[n:]
	return len(s.ranked) > 0
}

func (s *spread) places() []Place { return append(s.out, s.behind...) }
