package candidates

import (
	"fmt"
	"maps"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "packed candidates: "+fmt.Sprintf(format, args...))
}

// Unpack candidates, which share vectors and payloads with what was packed. What is no list of so
// many, or no set of names, is INVALID_ARGUMENT; values are left to the scorer's checks.
func Unpack(p *meshv1.PackedCandidates) ([]score.Candidate, error) {
	if p.GetCount() > score.MaxCandidates {
		return nil, invalid("%d, at most %d", p.GetCount(), score.MaxCandidates)
	}
	all := make([]score.Candidate, p.GetCount())
	if err := checkSets(p.GetSets()); err != nil {
		return nil, err
	}
	for _, unpack := range []func(*meshv1.PackedCandidates, []score.Candidate) error{unpackFeatures, unpackHeaders, unpackPriorities, unpackTimes, unpackVectors, unpackTexts} {
		if err := unpack(p, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkSets holds names to the order that expr.Table wants.
func checkSets(all []*meshv1.NameSet) error {
	for i, set := range all {
		for k, name := range set.GetNames() {
			if k > 0 && name <= set.GetNames()[k-1] {
				return invalid("the names of set %d are not ascending", i)
			}
		}
	}
	return nil
}

// fits finds a list that has neither no entry nor one for each candidate.
func fits(what string, n int, all []score.Candidate) error {
	if n != 0 && n != len(all) {
		return invalid("%d %s of %d candidates", n, what, len(all))
	}
	return nil
}

func unpackFeatures(p *meshv1.PackedCandidates, all []score.Candidate) error {
	return unpackTables("features", p.GetSets(), p.GetFeatureSets(), p.GetFeatures(), all, func(i int) *expr.Table[float64] { return &all[i].Features })
}

func unpackHeaders(p *meshv1.PackedCandidates, all []score.Candidate) error {
	values := make([]string, len(p.GetHeaders().GetLengths()))
	if err := cutTexts("headers", p.GetHeaders(), func(i int, text string) { values[i] = text }); err != nil {
		return err
	}
	return unpackTables("headers", p.GetSets(), p.GetHeaderSets(), values, all, func(i int) *expr.Table[string] { return &all[i].Headers })
}

// unpackTables of all candidates. Each value is one of the message's, which so bounds what is made.
func unpackTables[V float64 | string](what string, sets []*meshv1.NameSet, which []uint32, values []V, all []score.Candidate, of func(i int) *expr.Table[V]) error {
	if err := fits("sets of "+what, len(which), all); err != nil {
		return err
	}
	pairs := make([]expr.Pair[V], len(values))
	for i, at := range which {
		if int(at) >= len(sets) {
			return invalid("candidate %d: set %d of %d", i, at, len(sets))
		}
		names := sets[at].GetNames()
		if len(names) > len(values) {
			return invalid("candidate %d: too few %s", i, what)
		}
		if len(names) == 0 {
			continue
		}
		for k, name := range names {
			pairs[k] = expr.Pair[V]{Name: name, Value: values[k]}
		}
		of(i).Pairs = pairs[:len(names):len(names)]
		pairs, values = pairs[len(names):], values[len(names):]
	}
	if len(values) > 0 {
		return invalid("%d %s too many", len(values), what)
	}
	return nil
}

func unpackPriorities(p *meshv1.PackedCandidates, all []score.Candidate) error {
	if err := fits("priorities", len(p.GetPriorities()), all); err != nil {
		return err
	}
	for i, priority := range p.GetPriorities() {
		all[i].Priority = uint32(priority)
	}
	return nil
}

func unpackTimes(p *meshv1.PackedCandidates, all []score.Candidate) error {
	seconds, nanos := p.GetPublishedSeconds(), p.GetPublishedNanos()
	if len(seconds) != len(nanos) {
		return invalid("%d seconds and %d nanoseconds", len(seconds), len(nanos))
	}
	if err := fits("times", len(seconds), all); err != nil {
		return err
	}
	for i := range seconds {
		if nanos[i] != noTime {
			all[i].PublishedAt = score.Time{Seconds: seconds[i], Nanos: int32(nanos[i]), Set: true}
		}
	}
	return nil
}

func unpackVectors(p *meshv1.PackedCandidates, all []score.Candidate) error {
	if err := fits("dimensions", len(p.GetDimensions()), all); err != nil {
		return err
	}
	vectors := p.GetVectors()
	for i, n := range p.GetDimensions() {
		if uint64(n) > uint64(len(vectors)) {
			return invalid("candidate %d: its vector is cut off", i)
		}
		if n > 0 {
			all[i].Vector = vectors[:n:n]
		}
		vectors = vectors[n:]
	}
	if len(vectors) > 0 {
		return invalid("%d numbers of vectors too many", len(vectors))
	}
	return nil
}

func unpackTexts(p *meshv1.PackedCandidates, all []score.Candidate) error {
	for _, one := range []struct {
		what string
		of   *meshv1.PackedTexts
		put  func(i int, text string)
	}{
		{"ids", p.GetIds(), func(i int, text string) { all[i].ID = text }},
		{"topics", p.GetTopics(), func(i int, text string) { all[i].Topic = text }},
	} {
		if err := fits(one.what, len(one.of.GetLengths()), all); err != nil {
			return err
		}
		if err := cutTexts(one.what, one.of, one.put); err != nil {
			return err
		}
	}
	if err := fits("payloads", len(p.GetPayloads().GetLengths()), all); err != nil {
		return err
	}
	return cut("payloads", p.GetPayloads().GetTexts(), p.GetPayloads(), func(i int, payload []byte) bool {
		all[i].Payload = payload
		return true
	})
}

// cutTexts calls put for each of them. What is not UTF-8 is refused, as in any string of protobuf.
func cutTexts(what string, texts *meshv1.PackedTexts, put func(i int, text string)) error {
	return cut(what, string(texts.GetTexts()), texts, func(i int, text string) bool {
		put(i, text)
		return utf8.ValidString(text)
	})
}

// cut texts as their lengths say; put reports whether one is valid.
func cut[T string | []byte](what string, from T, texts *meshv1.PackedTexts, put func(i int, text T) bool) error {
	for i, n := range texts.GetLengths() {
		if uint64(n) > uint64(len(from)) {
			return invalid("entry %d of the %s is cut off", i, what)
		}
		if !put(i, from[:n]) {
			return invalid("entry %d of the %s is not UTF-8", i, what)
		}
		from = from[n:]
	}
	if len(from) > 0 {
		return invalid("%d bytes of %s too many", len(from), what)
	}
	return nil
}

// Messages are candidates as pushmeshv1 has them, for nodes that take no packed ones.
func Messages(all []score.Candidate) []*pushmeshv1.Candidate {
	out := make([]*pushmeshv1.Candidate, len(all))
	for i := range all {
		c := &all[i]
		out[i] = &pushmeshv1.Candidate{
			Id: c.ID, Topic: c.Topic, Priority: c.Priority, Vector: c.Vector, Payload: c.Payload, Features: maps.Collect(c.Features.All()), Headers: maps.Collect(c.Headers.All()),
		}
		if t := c.PublishedAt; t.Set {
			out[i].PublishedAt = &timestamppb.Timestamp{Seconds: t.Seconds, Nanos: t.Nanos}
		}
	}
	return out
}
