package vector

import (
	"errors"
	"math"
)

// block is how many rows stay in the nearest cache while every profile meets them: 64 rows of 128
// float32 are 32 KiB.
const block = 8192

// blockRows of a dimension, a multiple of 4.
func blockRows(dim int) int { return max(block/max(dim, 1)&^3, 4) }

// ErrShape is of matrices that are not whole rows of the dimension.
var ErrShape = errors.New("a matrix is not whole rows of its dimension")

func rowsOf(flat []float32, dim int) (int, error) {
	if dim <= 0 || len(flat)%dim != 0 {
		return 0, ErrShape
	}
	return len(flat) / dim, nil
}

// Dots writes the dot product of every profile with every row: out[p·rows + r]. rows and profiles
// are vectors of dim elements, one after the other.
func Dots(rows []float32, dim int, profiles, out []float32) error {
	n, err := rowsOf(rows, dim)
	if err != nil {
		return err
	}
	m, err := rowsOf(profiles, dim)
	if err != nil {
		return err
	}
	if len(out) != n*m {
		return ErrShape
	}
	step := blockRows(dim)
	for from := 0; from < n; from += step {
		to := min(from+step, n)
		for p := range m {
			dotsOf(rows[from*dim:to*dim], profiles[p*dim:(p+1)*dim], out[p*n+from:p*n+to])
		}
	}
	return nil
}

// dotsOf is one profile with the rows of a block.
func dotsOf(rows, profile, out []float32) {
	dim, i := len(profile), 0
	for ; i+4 <= len(out); i += 4 {
		dots4(rows[i*dim:(i+4)*dim], profile, (*[4]float32)(out[i:]))
	}
	for ; i < len(out); i++ {
		out[i] = dot(rows[i*dim:(i+1)*dim], profile)
	}
}

func dots4Go(rows, v []float32, out *[4]float32) {
	for i := range out {
		out[i] = dotGo(rows[i*len(v):(i+1)*len(v)], v)
	}
}

// Scored is a row and its product.
type Scored struct {
	Row   int
	Score float32
}

// TopK gives, for each profile, the k rows with the largest dot products, best first, equal ones in
// the order of rows; NaN counts as minus infinity. The result is one slice per profile, of min(k,
// rows).
func TopK(rows []float32, dim int, profiles []float32, k int) ([][]Scored, error) {
	n, err := rowsOf(rows, dim)
	if err != nil {
		return nil, err
	}
	m, err := rowsOf(profiles, dim)
	if err != nil {
		return nil, err
	}
	k = max(min(k, n), 0)
	all, out := make([]Scored, m*k), make([][]Scored, m)
	for p := range out {
		out[p] = all[p*k : p*k : (p+1)*k]
	}
	if k == 0 {
		return out, nil
	}
	step := blockRows(dim)
	scores := make([]float32, min(step, n))
	for from := 0; from < n; from += step {
		to := min(from+step, n)
		for p := range out {
			part := scores[:to-from]
			dotsOf(rows[from*dim:to*dim], profiles[p*dim:(p+1)*dim], part)
			h := heap(out[p])
			h.offer(part, from, k)
			out[p] = h
		}
	}
	for _, best := range out {
		heap(best).sort()
	}
	return out, nil
}

// heap has the worst of the best on top.
type heap []Scored

// offer keeps what belongs to the best k of the scores of rows from, from+1, …
func (h *heap) offer(scores []float32, from, k int) {
	i := 0
	for ; i < len(scores) && len(*h) < k; i++ {
		*h = append(*h, Scored{from + i, nanLast(scores[i])})
		if len(*h) == k {
			h.build()
		}
	}
	if i == len(scores) {
		return
	}
	worst := (*h)[0].Score
	for ; i < len(scores); i++ {
		if s := scores[i]; s > worst { // an equal one comes later, and is worse
			(*h)[0] = Scored{from + i, s}
			h.down(0, len(*h))
			worst = (*h)[0].Score
		}
	}
}

// nanLast returns minus infinity for NaN, so that it comes last.
func nanLast(s float32) float32 {
	if s != s {
		return float32(math.Inf(-1))
	}
	return s
}

func (h heap) build() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i, len(h))
	}
}

// sort a heap, best first.
func (h heap) sort() {
	for end := len(h) - 1; end > 0; end-- {
		h[0], h[end] = h[end], h[0]
		h.down(0, end)
	}
}

func (h heap) worse(i, j int) bool {
	if h[i].Score != h[j].Score {
		return h[i].Score < h[j].Score
	}
	return h[i].Row > h[j].Row
}

func (h heap) down(i, n int) {
	for {
		child := 2*i + 1
		if child >= n {
			return
		}
		if child+1 < n && h.worse(child+1, child) {
			child++
		}
		if !h.worse(child, i) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
