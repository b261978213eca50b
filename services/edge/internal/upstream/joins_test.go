package upstream

import (
	"fmt"
	"slices"
	"testing"
)

// Filters whose joins were answered late are compared once their own versions are applied, and not
// before.
func TestLateFiltersAreFoundInOrder(t *testing.T) {
	j := &joins{}
	for version := uint64(1); version <= 4; version++ {
		j.answeredLate(version, fmt.Sprint("f", version))
	}
	var found []string
	note := func(filter string) { found = append(found, filter) }
	for _, c := range []struct {
		applied uint64
		want    []string
		waits   bool
	}{
		{0, nil, true},
		{2, []string{"f1", "f2"}, true},
		{2, nil, true},
		{9, []string{"f3", "f4"}, false},
	} {
		found = nil
		if j.caughtUp(c.applied, 99, note); !slices.Equal(found, c.want) || j.waitsForRouters() != c.waits {
			t.Errorf("version %d is applied: %v, waits for more: %v", c.applied, found, j.waitsForRouters())
		}
	}
}

// While a router applies nothing, only the latest filters are kept.
func TestLateFiltersAreBounded(t *testing.T) {
	j := &joins{}
	for version := range uint64(laggingMost + 3) {
		j.answeredLate(version+1, "f")
	}
	j.caughtUp(0, 99, func(filter string) { t.Errorf("%s is found although nothing is applied", filter) })
	if n, first := len(j.lagging), j.lagging[0].version; n != laggingMost || first != 4 {
		t.Errorf("%d filters are kept, from version %d on", n, first)
	}
}

// Every join over the bound is refused until one is answered.
func TestJoinsAreCounted(t *testing.T) {
	j := &joins{}
	j.waiting.Store(joinsWaiting - 1)
	if !j.count() || j.count() {
		t.Errorf("with %d joins the last one that may wait is not the last", j.waiting.Load())
	}
	j.waiting.Add(-2)
	if !j.count() {
		t.Error("none may wait although two were answered")
	}
}
