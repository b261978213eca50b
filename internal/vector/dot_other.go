//go:build !amd64

package vector

func dot(a, b []float32) float32 { return dotGo(a, b) }

func dots4(rows, v []float32, out *[4]float32) { dots4Go(rows, v, out) }
