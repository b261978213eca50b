package vector

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkDot(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x, y := random(r, 128), random(r, 128)
	for name, f := range map[string]func(a, b []float32) float32{"fast": Dot, "go": dotGo} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f(x, y)
			}
		})
	}
}

// BenchmarkTopK is the best 100 of 10,000 rows of 128 dimensions for 1,000 profiles;
// test/load/compute/c/topk.c is the same in C.
func BenchmarkTopK(b *testing.B) {
	const rows, profiles, dim, k = 10_000, 1_000, 128, 100
	r := rand.New(rand.NewPCG(1, 2))
	x, y := uniform(r, rows*dim), uniform(r, profiles*dim)
	for b.Loop() {
		if _, err := TopK(x, dim, y, k); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*rows*profiles/b.Elapsed().Seconds()/1e6, "Mdots/s")
}

func uniform(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}
