package score

// worse reports whether a ranks behind b: a lower score, or the same and later in the request.
func (a Place) worse(b Place) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	return a.Index > b.Index
}

// heap holds the best entries with the worst of them on top.
type heap []Place

// offer keeps e if it is among the best keep.
func (h *heap) offer(e Place, keep int) {
	if len(*h) < keep {
		*h = append(*h, e)
		h.up(len(*h) - 1)
		return
	}
	if keep > 0 && (*h)[0].worse(e) {
		(*h)[0] = e
		h.down()
	}
}

// pop takes the worst.
func (h *heap) pop() Place {
	top, n := (*h)[0], len(*h)-1
	(*h)[0] = (*h)[n]
	*h = (*h)[:n]
	h.down()
	return top
}

func (h *heap) up(i int) {
	for s := *h; i > 0; {
		parent := (i - 1) / 2
		if !s[i].worse(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *heap) down() {
	s := *h
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(s) {
			return
		}
		if child+1 < len(s) && s[child+1].worse(s[child]) {
			child++
		}
		if !s[child].worse(s[i]) {
			return
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
