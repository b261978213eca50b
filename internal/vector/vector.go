// Package vector has dot products, norms and cosines of float32 vectors, and the best K rows of a
// matrix for each of many profiles.
//
// A sum has one order, so that a ranking is the same on every machine: 16 partial sums, the i-th of
// the products at i, i+16, i+32 … of the vector up to its last whole sixteen, each product rounded
// before it is added (no fused multiply-add: without an instruction for it, it is emulated 20 times
// slower); then the halves are added, 16 to 8 to 4 to 2 to 1 (i and i+8, i and i+4, …); then the
// products behind the last whole sixteen, one after the other. Assembly for amd64 with AVX2 and the
// code in Go for all other machines give the same bits, which a test holds them to.
package vector

import "math"

// lanes is how many partial sums there are.
const lanes = 16

// Dot is the sum of a[i]·b[i]; where one is longer, its rest does not count.
func Dot(a, b []float32) float32 {
	n := min(len(a), len(b))
	return dot(a[:n], b[:n])
}

// Norm is the square root of Dot(a, a).
func Norm(a []float32) float32 { return float32(math.Sqrt(float64(Dot(a, a)))) }

// dotGo is dot in Go alone.
func dotGo(a, b []float32) float32 {
	var s [lanes]float32
	i := 0
	for ; i+lanes <= len(a) && i+lanes <= len(b); i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[lanes]float32)(b[i:])
		s[0] += float32(x[0] * y[0])
		s[1] += float32(x[1] * y[1])
		s[2] += float32(x[2] * y[2])
		s[3] += float32(x[3] * y[3])
		s[4] += float32(x[4] * y[4])
		s[5] += float32(x[5] * y[5])
		s[6] += float32(x[6] * y[6])
		s[7] += float32(x[7] * y[7])
		s[8] += float32(x[8] * y[8])
		s[9] += float32(x[9] * y[9])
		s[10] += float32(x[10] * y[10])
		s[11] += float32(x[11] * y[11])
		s[12] += float32(x[12] * y[12])
		s[13] += float32(x[13] * y[13])
		s[14] += float32(x[14] * y[14])
		s[15] += float32(x[15] * y[15])
	}
	return rest(fold(&s), a[i:], b[i:])
}

func fold(s *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			s[i] += s[i+half]
		}
	}
	return s[0]
}

// rest adds the products of a and b to sum.
func rest(sum float32, a, b []float32) float32 {
	for i := range a {
		sum += float32(a[i] * b[i])
	}
	return sum
}
