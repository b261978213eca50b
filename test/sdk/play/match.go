package play

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// match compares what came with what a scene names of it; the error says where they differ.
func match(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if err := match(at+"."+k, w[k], g[k]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, _ := got.([]any)
		return matchList(at, w, g)
	}
	if isZero(want) && isZero(got) || text(want) == text(got) && want != nil && got != nil {
		return nil
	}
	return fmt.Errorf("%s is %s, want %s", strings.TrimPrefix(at, "."), show(got), show(want))
}

// matchList has each element find one of its own, in whatever order.
func matchList(at string, want, got []any) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s has %d elements (%s), want %d", strings.TrimPrefix(at, "."), len(got), show(got), len(want))
	}
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, func(g any) bool { return match("", w, g) == nil })
		if i < 0 {
			return fmt.Errorf("%s is %s, want an element like %s", strings.TrimPrefix(at, "."), show(got), show(w))
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

func isZero(x any) bool {
	switch v := x.(type) {
	case nil:
		return true
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	t := text(x)
	return t == "" || t == "0"
}

// text of a value: a number is the same as a string of its digits.
func text(x any) string {
	switch v := x.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return show(x)
}

// show is JSON, cut where it is long.
func show(x any) string {
	b, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	if len(b) > 400 {
		return string(b[:400]) + "…"
	}
	return string(b)
}

// fill puts kept values in the place of "$name" and "$name.field", and makes long strings.
func (s *stage) fill(x any) (any, error) {
	switch v := x.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, one := range v {
			filled, err := s.fill(one)
			if err != nil {
				return nil, err
			}
			out[k] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			filled, err := s.fill(one)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	case string:
		return s.fillText(v)
	}
	return x, nil
}

func (s *stage) fillText(v string) (any, error) {
	if name, ok := strings.CutPrefix(v, "$"); ok {
		name, field, _ := strings.Cut(name, ".")
		kept, ok := s.kept[name]
		if !ok {
			return nil, fmt.Errorf("nothing is kept as %q", name)
		}
		if field == "" {
			return kept, nil
		}
		return kept[field], nil
	}
	if what, ok := strings.CutPrefix(v, "{"); ok && strings.HasSuffix(what, "}") {
		one, times, ok := strings.Cut(strings.TrimSuffix(what, "}"), "*")
		if n, err := strconv.Atoi(times); ok && err == nil {
			return strings.Repeat(one, n), nil
		}
	}
	return v, nil
}

// filled is fill of an object.
func (s *stage) filled(m map[string]any) (map[string]any, error) {
	x, err := s.fill(m)
	if err != nil {
		return nil, err
	}
	return x.(map[string]any), nil
}
