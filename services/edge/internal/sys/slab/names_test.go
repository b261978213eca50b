package slab_test

import (
	"fmt"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

type person struct {
	name string
	next *person
}

func (p *person) Name() string   { return p.name }
func (p *person) Next() **person { return &p.next }

// Names answer as a map does, whatever comes and goes, and hold nothing in the end.
func TestNamesAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var people slab.Slab[person]
		var texts slab.Texts
		var arrays slab.Arrays
		names := slab.NewNames[person](&arrays)
		want := map[string]*person{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			adds := rapid.Bool().Draw(t, "adds")
			first := rapid.IntRange(0, 1000).Draw(t, "first")
			for i := range rapid.IntRange(1, 600).Draw(t, "n") {
				name := fmt.Sprint("room/", first+i)
				got := names.Get(name)
				if got != want[name] {
					t.Fatalf("%q finds %p, want %p", name, got, want[name])
				}
				switch {
				case adds && got == nil:
					p := people.Take()
					p.name = texts.Put(name)
					names.Put(p)
					want[name] = p
				case !adds && got != nil:
					names.Drop(got)
					texts.Drop(got.name)
					people.Free(got)
					delete(want, name)
				}
			}
			if names.Len() != len(want) {
				t.Fatalf("%d names, want %d", names.Len(), len(want))
			}
		}
		for name, p := range want {
			if names.Get(name) != p {
				t.Fatalf("%q is lost", name)
			}
			names.Drop(p)
		}
		if names.Len() != 0 || arrays.Bytes() != 0 || names.Get("room/1") != nil {
			t.Fatalf("%d names and %d bytes are left", names.Len(), arrays.Bytes())
		}
	})
}

func BenchmarkNames(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		var people slab.Slab[person]
		var arrays slab.Arrays
		names, asMap := slab.NewNames[person](&arrays), map[string]*person{}
		var keys []string
		for i := range n {
			p := people.Take()
			p.name = fmt.Sprint("room/", i)
			keys = append(keys, p.name)
			names.Put(p)
			asMap[p.name] = p
		}
		i := 0
		b.Run(fmt.Sprint("names-", n), func(b *testing.B) {
			for b.Loop() {
				i = (i*5 + 1) % n
				_ = names.Get(keys[i])
			}
		})
		b.Run(fmt.Sprint("map-", n), func(b *testing.B) {
			for b.Loop() {
				i = (i*5 + 1) % n
				_ = asMap[keys[i]]
			}
		})
		runtime.KeepAlive(&people) // names point into it
	}
}
