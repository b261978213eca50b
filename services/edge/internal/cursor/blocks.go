package cursor

import "slices"

// span is a range of seqs, both ends in it.
type span struct{ lo, hi uint64 }

// blockSpans bounds how many ranges lie side by side: as many, and further ones go into blocks. So
// one that is put in among very many moves 2 KiB at most.
const blockSpans = 128

// blocks are ranges cut into pieces, none of them empty, and each with fewer than blockSpans.
type blocks [][]span

// find is the first range that ends at or after seq.
func find(spans []span, seq uint64) int {
	i, _ := slices.BinarySearchFunc(spans, seq, func(s span, seq uint64) int {
		if s.hi < seq {
			return -1
		}
		return 1
	})
	return i
}

// begun is how many ranges begin at or before seq.
func begun(spans []span, seq uint64) int {
	i, _ := slices.BinarySearchFunc(spans, seq, func(s span, seq uint64) int {
		if s.lo <= seq {
			return -1
		}
		return 1
	})
	return i
}

// has reports whether seq is in one of them.
func has(spans []span, seq uint64) bool {
	i := find(spans, seq)
	return i < len(spans) && spans[i].lo <= seq
}

// count is how many seqs of lo to hi are in them.
func count(spans []span, lo, hi uint64) (n uint64) {
	for _, s := range spans[find(spans, lo):] {
		if s.lo > hi {
			break
		}
		n += min(s.hi, hi) - max(s.lo, lo) + 1
	}
	return n
}

// join puts lo to hi in, as one range with those that it meets.
func join(spans []span, lo, hi uint64) []span {
	i := find(spans, lo-1) // one that ends at lo-1 is met
	j := max(i, begun(spans, hi+1))
	if j > i {
		lo, hi = min(lo, spans[i].lo), max(hi, spans[j-1].hi)
	}
	return slices.Replace(spans, i, j, span{lo, hi})
}

// find is the first block with a range that ends at or after seq.
func (b blocks) find(seq uint64) int {
	i, _ := slices.BinarySearchFunc(b, seq, func(spans []span, seq uint64) int {
		if spans[len(spans)-1].hi < seq {
			return -1
		}
		return 1
	})
	return i
}

func (b blocks) has(seq uint64) bool {
	i := b.find(seq)
	return i < len(b) && has(b[i], seq)
}

func (b blocks) count(lo, hi uint64) (n uint64) {
	for i := b.find(lo); i < len(b) && b[i][0].lo <= hi; i++ {
		n += count(b[i], lo, hi)
	}
	return n
}

// settle puts lo to hi in.
func (b blocks) settle(lo, hi uint64) blocks {
	i := min(b.find(lo-1), len(b)-1)
	j := i
	for j+1 < len(b) && b[j+1][0].lo <= hi+1 {
		j++
	}
	if j > i { // it reaches into block j: those in between are in it, and go
		n := begun(b[j], hi+1)
		hi = max(hi, b[j][n-1].hi)
		if b[j] = slices.Delete(b[j], 0, n); len(b[j]) == 0 {
			j++
		}
		b = slices.Delete(b, i+1, j)
	}
	b[i] = join(b[i], lo, hi)
	return b.split(i).merge(i + 1).merge(i).merge(i - 1)
}

// split halves block i where it is full. One that grew at the end of all stays as long as it is.
func (b blocks) split(i int) blocks {
	n := len(b[i])
	if n < blockSpans {
		return b
	}
	at := n / 2
	if i == len(b)-1 {
		at = n - 1
	}
	end := slices.Clone(b[i][at:])
	b[i] = b[i][:at]
	return slices.Insert(b, i+1, end)
}

// merge puts the block behind i into it where both are short.
func (b blocks) merge(i int) blocks {
	if i < 0 || i+1 >= len(b) || len(b[i])+len(b[i+1]) > blockSpans/2 {
		return b
	}
	b[i] = append(b[i], b[i+1]...)
	return slices.Delete(b, i+1, i+2)
}

// take takes out the ranges that begin at or before seq. end is where the last of them ends; 0:
// there is none.
func (b blocks) take(seq uint64) (rest blocks, end uint64) {
	i, _ := slices.BinarySearchFunc(b, seq, func(spans []span, seq uint64) int {
		if spans[len(spans)-1].lo <= seq {
			return -1
		}
		return 1
	})
	if i > 0 {
		end = b[i-1][len(b[i-1])-1].hi
	}
	if b = slices.Delete(b, 0, i); len(b) == 0 {
		return nil, end
	}
	if n := begun(b[0], seq); n > 0 {
		end = b[0][n-1].hi
		b[0] = slices.Delete(b[0], 0, n)
	}
	return b.merge(0), end
}
