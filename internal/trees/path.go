package trees

// The polynomial algorithm of TreeSHAP keeps, for the columns that a path splits on, how much each
// number of them being known weighs. Lundberg et al., arXiv:1802.03888, algorithm 2: extend adds a
// column, unwind takes one out, unwoundSum is what the weights would sum up to without it.

// extend puts an element at place depth of the path, which has depth of them.
func extend(path []element, depth int, e element) {
	e.weight = 0
	if depth == 0 {
		e.weight = 1
	}
	path[depth] = e
	size := float64(depth + 1)
	for i := depth - 1; i >= 0; i-- {
		w := path[i].weight
		path[i+1].weight += e.one * w * float64(i+1) / size
		path[i].weight = e.zero * w * float64(depth-i) / size
	}
}

// unwind takes the element at place at out of a path whose last place is depth.
func unwind(path []element, depth, at int) {
	zero, one := path[at].zero, path[at].one
	next := path[depth].weight
	size := float64(depth + 1)
	for i := depth - 1; i >= 0; i-- {
		w := path[i].weight
		if one != 0 {
			path[i].weight = next * size / (float64(i+1) * one)
			next = w - path[i].weight*zero*float64(depth-i)/size
		} else {
			path[i].weight = w * size / (zero * float64(depth-i))
		}
	}
	for i := at; i < depth; i++ {
		path[i].column, path[i].zero, path[i].one = path[i+1].column, path[i+1].zero, path[i+1].one
	}
}

func unwoundSum(path []element, depth, at int) float64 {
	zero, one := path[at].zero, path[at].one
	next := path[depth].weight
	size := float64(depth + 1)
	total := 0.0
	for i := depth - 1; i >= 0; i-- {
		if one != 0 {
			w := next * size / (float64(i+1) * one)
			total += w
			next = path[i].weight - w*zero*float64(depth-i)/size
		} else {
			total += path[i].weight / zero / (float64(depth-i) / size)
		}
	}
	return total
}
