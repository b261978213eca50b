package playground

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestPricesMove(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changed := 0
	for _, s := range stocks() {
		for round := 1; round <= 1000; round++ {
			before := s.Price
			s.move(round, random)
			f := s.features()
			if s.Price < 100 || s.Round != round || f[s.Sector] != 1 || len(f) != 2 {
				t.Fatalf("%+v with %v", s, f)
			}
			if want := math.Abs(float64(s.Price-before)) / float64(before) * 100; math.Abs(f["move"]-want) > 0.01 {
				t.Fatalf("%s went from %d to %d, which is %v percent and not %v", s.Symbol, before, s.Price, want, f["move"])
			}
			if s.Price != before {
				changed++
			}
		}
	}
	if changed < 10_000 {
		t.Errorf("of 12,000 prices %d are new", changed)
	}
}

// A pane shows five of a sector's four and the others': each taste has something to choose from.
func TestSectorsAreEqual(t *testing.T) {
	sectors := map[string]int{}
	symbols := map[string]bool{}
	for _, s := range stocks() {
		sectors[s.Sector]++
		symbols[s.Symbol] = true
	}
	if len(symbols) != 12 || sectors["tech"] != 4 || sectors["energy"] != 4 || sectors["food"] != 4 {
		t.Errorf("%v, %v", sectors, symbols)
	}
}
