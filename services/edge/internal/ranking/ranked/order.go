package ranked

import "github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"

// Order is what a member is handed, in this order: the best, then those from a seq to another, but
// for some.
type Order struct {
	Best     []Next
	From, To uint64     // From > To: none
	Skip     []uint64   // ascending
	Mark     sendq.Mark // of those after the best
}

// Next is a message that comes next.
type Next struct {
	Seq  uint64
	Mark sendq.Mark
}

// Next is what comes next; ok is false where nothing remains.
func (o *Order) Next() (next Next, ok bool) {
	if len(o.Best) > 0 {
		return o.Best[0], true
	}
	for o.From <= o.To && o.To > 0 {
		for len(o.Skip) > 0 && o.Skip[0] < o.From {
			o.Skip = o.Skip[1:]
		}
		if len(o.Skip) == 0 || o.Skip[0] != o.From {
			return Next{o.From, o.Mark}, true
		}
		o.From++
	}
	*o = Order{}
	return Next{}, false
}

// Pop takes away what Next said.
func (o *Order) Pop() {
	if len(o.Best) > 0 {
		o.Best = o.Best[1:]
	} else {
		o.From++
	}
}

// PutBack has a message that was taken out of the send queue handed on again, before all others.
func (o *Order) PutBack(seq uint64, m sendq.Mark) {
	o.Best = append([]Next{{seq, m}}, o.Best...)
}
