package vector

import "golang.org/x/sys/cpu"

// fast reports whether the assembly runs on this machine.
var fast = cpu.X86.HasAVX2

// dot of vectors of the same length.
func dot(a, b []float32) float32 {
	whole := len(a) &^ (lanes - 1)
	if !fast || whole == 0 {
		return dotGo(a, b)
	}
	return rest(dotAVX2(&a[0], &b[0], whole), a[whole:], b[whole:])
}

// dots4 are the dot products of four rows, which follow each other in memory, with one vector.
func dots4(rows, v []float32, out *[4]float32) {
	dim := len(v)
	whole := dim &^ (lanes - 1)
	if !fast || whole == 0 {
		dots4Go(rows, v, out)
		return
	}
	dots4AVX2(&rows[0], &v[0], whole, dim, out)
	if whole < dim {
		for i := range out {
			out[i] = rest(out[i], rows[i*dim+whole:(i+1)*dim], v[whole:])
		}
	}
}

// dotAVX2 takes n elements, a multiple of 16 above 0.
//
//go:noescape
func dotAVX2(a, b *float32, n int) float32

// dots4AVX2 takes n elements, a multiple of 16 above 0, of four rows that are dim elements apart.
//
//go:noescape
func dots4AVX2(rows, v *float32, n, dim int, out *[4]float32)
