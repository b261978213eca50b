package vector

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64() * math.Exp(r.Float64()*20-10))
	}
	return v
}

// reference is the order of a sum as the package's comment has it, in the plainest way.
func reference(a, b []float32) float32 {
	var s [16]float32
	whole := len(a) / 16 * 16
	for i := range whole {
		p := a[i] * b[i]
		s[i%16] += p
	}
	for half := 8; half >= 1; half /= 2 {
		for i := range half {
			s[i] += s[i+half]
		}
	}
	sum := s[0]
	for i := whole; i < len(a); i++ {
		p := a[i] * b[i]
		sum += p
	}
	return sum
}

func TestEveryWayGivesTheSameBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for dim := range 200 {
		rows, v := random(r, 4*dim+1)[1:], random(r, dim+1)[1:] // not aligned
		if dim > 20 && dim%7 == 0 {
			v[3], rows[5] = float32(math.Inf(1)), float32(math.Copysign(0, -1))
		}
		var four, fourGo [4]float32
		dots4Go(rows, v, &fourGo)
		if dim > 0 {
			dots4(rows, v, &four)
		}
		for i := range 4 {
			row := rows[i*dim : (i+1)*dim]
			want := math.Float32bits(reference(row, v))
			for name, got := range map[string]float32{"Dot": Dot(row, v), "in Go": dotGo(row, v), "four": four[i], "four in Go": fourGo[i]} {
				if math.Float32bits(got) != want && !(got != got && math.IsNaN(float64(math.Float32frombits(want)))) {
					t.Fatalf("dimension %d, row %d, %s: %v, not %v", dim, i, name, got, math.Float32frombits(want))
				}
			}
		}
	}
}

func TestNorm(t *testing.T) {
	if n := Norm([]float32{3, 4}); n != 5 {
		t.Error(n)
	}
}

func TestDotsAndTopK(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct{ n, m, dim, k int }{{1, 1, 1, 1}, {7, 3, 5, 4}, {300, 4, 48, 10}, {203, 2, 130, 203}, {50, 2, 16, 99}, {9, 2, 9000, 3}, {5, 2, 3, 0}, {0, 2, 3, 4}} {
		rows, profiles := random(r, c.n*c.dim), random(r, c.m*c.dim)
		if c.n > 8 { // equal scores, and none
			copy(rows[5*c.dim:6*c.dim], rows[2*c.dim:3*c.dim])
			rows[7*c.dim] = float32(math.NaN())
		}
		out := make([]float32, c.n*c.m)
		if err := Dots(rows, c.dim, profiles, out); err != nil {
			t.Fatal(err)
		}
		got, err := TopK(rows, c.dim, profiles, c.k)
		if err != nil || len(got) != c.m {
			t.Fatal(err)
		}
		for p := range c.m {
			var want []Scored
			for i := range c.n {
				s := Dot(rows[i*c.dim:(i+1)*c.dim], profiles[p*c.dim:(p+1)*c.dim])
				if one := out[p*c.n+i]; one != s && s == s {
					t.Fatalf("%+v: row %d, profile %d: %v, not %v", c, i, p, one, s)
				}
				want = append(want, Scored{i, nanLast(s)})
			}
			slices.SortStableFunc(want, func(a, b Scored) int { return cmp.Compare(b.Score, a.Score) })
			if want = want[:min(c.k, c.n)]; !slices.Equal(got[p], want) {
				t.Fatalf("%+v: profile %d: %v, not %v", c, p, got[p], want)
			}
		}
	}
}

func TestShapes(t *testing.T) {
	if err := Dots(make([]float32, 7), 2, make([]float32, 2), make([]float32, 3)); err == nil {
		t.Error("half a row")
	}
	if err := Dots(make([]float32, 6), 2, make([]float32, 2), make([]float32, 2)); err == nil {
		t.Error("a place too few")
	}
	if _, err := TopK(make([]float32, 6), 0, nil, 1); err == nil {
		t.Error("no dimension")
	}
	if _, err := TopK(make([]float32, 6), 2, make([]float32, 3), 1); err == nil {
		t.Error("half a profile")
	}
}
