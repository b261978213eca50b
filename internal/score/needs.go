package score

import (
	"slices"
	"strings"
	"unicode"
)

// Needs says which parts of candidates and profiles a Scoring looks at, at most: whoever makes
// candidates may leave out the others.
type Needs struct {
	ID, Topic, Features, Vector, Headers, Payload bool
	// FeatureNames are those of Features, ascending; nil: it may look at any.
	FeatureNames []string
	// PublishedAt: the score depends on age.
	PublishedAt bool
	// Profile: its features. Of its vector, Vector tells.
	Profile bool
}

// Personal reports whether profiles matter: otherwise all get the same.
func (n *Needs) Personal() bool { return n.Profile || n.Vector }

// Feature reports whether a Scoring may look at the feature of a name.
func (n *Needs) Feature(name string) bool {
	if !n.Features || n.FeatureNames == nil {
		return n.Features
	}
	_, found := slices.BinarySearch(n.FeatureNames, name)
	return found
}

// NeedsOf a Scoring. Expressions are read as words, not compiled: what one does not name, it can't
// look at.
func NeedsOf(s Scoring) Needs {
	var n Needs
	named := []string{}
	switch {
	case s.GetWeighted() != nil:
		w := s.GetWeighted()
		n.Profile = len(w.GetAffinities()) > 0
		n.PublishedAt = w.GetHalfLife().AsDuration() > 0
		for _, factors := range []map[string]float64{w.GetWeights(), w.GetAffinities()} {
			for name := range factors {
				named = append(named, name)
			}
		}
	case s.GetExpression() != nil:
		n.addWords(s.GetExpression().GetExpression())
	case s.GetEmbedding() != nil:
		n.Vector = true
	case s.GetModel() != nil: // who has it knows its columns
		n.Features, n.Profile = true, true
	}
	n.addWords(s.GetFilter())
	switch kind, name, _ := strings.Cut(s.GetDiversify().GetKey(), ":"); kind {
	case "topic":
		n.Topic = true
	case "header":
		n.Headers = true
	case "feature":
		named = append(named, name)
	}
	if !n.Features && len(named) > 0 {
		n.Features = true
		slices.Sort(named)
		n.FeatureNames = slices.Compact(named)
	}
	return n
}

// addWords of an expression. CEL has no other way to write the name of a variable.
func (n *Needs) addWords(expression string) {
	for word := range strings.FieldsFuncSeq(expression, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		switch word {
		case "id":
			n.ID = true
		case "topic":
			n.Topic = true
		case "features":
			n.Features = true
		case "headers":
			n.Headers = true
		case "payload":
			n.Payload = true
		case "age":
			n.PublishedAt = true
		case "profile":
			n.Profile = true
		}
	}
}
