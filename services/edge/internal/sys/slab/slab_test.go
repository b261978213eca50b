package slab_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

type thing struct {
	number int
	other  *thing
}

func TestPlacesAreZeroedAndUsedAgain(t *testing.T) {
	var s slab.Slab[thing]
	var all []*thing
	for i := range 3000 {
		p := s.Take()
		if *p != (thing{}) {
			t.Fatalf("place %d is not zeroed: %+v", i, *p)
		}
		p.number = i
		all = append(all, p)
	}
	runtime.GC()
	for i, p := range all {
		if p.number != i || s.At(i) != p {
			t.Fatalf("place %d holds %d", i, p.number)
		}
	}
	s.Free(all[7])
	if slab.Scribbles && all[7].number == 7 {
		t.Fatal("a place that was freed still holds its value")
	}
	if p := s.Take(); p != all[7] || *p != (thing{}) {
		t.Fatalf("got %p %+v, want the freed place zeroed", p, *p)
	}
	if s.Taken() != 3000 || s.Len() != 3000 {
		t.Fatalf("%d taken of %d", s.Taken(), s.Len())
	}
}

func TestSlabRefusesWhatTheCollectorMustSee(t *testing.T) {
	refused := func(take func()) (refused bool) {
		defer func() { refused = recover() != nil }()
		take()
		return
	}
	if !refused(func() { new(slab.Slab[struct{ b []byte }]).Take() }) || !refused(func() { new(slab.Slab[struct{ a [2]error }]).Take() }) ||
		!refused(func() { new(slab.Slab[struct{ m map[int]int }]).Take() }) {
		t.Fatal("a type that the collector must see was taken")
	}
	if refused(func() { new(slab.Slab[thing]).Take() }) {
		t.Fatal("a type that fits was refused")
	}
}

func TestPoolClears(t *testing.T) {
	var p slab.Pool[thing]
	v := p.Take()
	v.other = v
	p.Give(v)
	if v.other != nil || p.Taken() != 0 {
		t.Fatalf("what was given back still refers to something: %+v", v)
	}
	if p.Take() != v {
		t.Fatal("a place that was given back is not used again")
	}
}

func TestTexts(t *testing.T) {
	var texts slab.Texts
	var kept, want []string
	for n := range slab.MaxText + 2 {
		s := strings.Repeat(string(rune('a'+n%26)), n)
		kept, want = append(kept, texts.Put(s)), append(want, s)
	}
	want[slab.MaxText+1] = "" // too long
	for i := range kept {
		if kept[i] != want[i] {
			t.Fatalf("%q, want %q", kept[i], want[i])
		}
	}
	before := texts.Bytes()
	for _, s := range kept {
		texts.Drop(s)
	}
	for _, s := range want {
		texts.Put(s)
	}
	if texts.Bytes() != before {
		t.Fatalf("%d bytes after the same strings once more, %d before", texts.Bytes(), before)
	}
}
