package delivery

import "math/bits"

// Connections that owe much are listed by how much that is, eight classes to a doubling, so that
// who owes most is found without a walk, to an eighth. What a connection owes is what its queue
// refers to, the queue's own memory, and what the kernel holds for it while its socket is stuck.

// debtClasses are enough for any number of bytes.
const debtClasses = 256

// Bounds of what makes a connection listed: who owes less pays for nobody, and costs nothing here.
const (
	leastDebt = 2 << 10
	mostDebt  = 16 << 10
	// debtors is about how many connections may owe just less than what is listed, before they have
	// the whole budget.
	debtors = 1 << 16
)

// debts belong to the hub.
type debts struct {
	shift   int // bits below an eighth of the smallest class
	heads   [debtClasses]*outbox
	counts  [debtClasses]int
	nonzero [debtClasses / 64]uint64
}

func newDebts(budget int64) debts {
	return debts{shift: bits.Len64(uint64(min(max(budget/debtors, leastDebt), mostDebt))) - 4}
}

// class of so many bytes; 0: not listed.
func (d *debts) class(held int) uint8 {
	v := uint(max(held, 0)) >> d.shift
	if v < 8 {
		return 0
	}
	e := bits.Len(v) - 4
	return uint8(min(e*8+int(v>>e)-7, debtClasses-1))
}

// least is what one of a class owes at least.
func (d *debts) least(class int) int { return (8 + (class-1)%8) << ((class-1)/8 + d.shift) }

// rank puts an outbox where it belongs by now.
func (d *debts) rank(o *outbox) {
	class := d.class(o.held)
	if class == o.class {
		return
	}
	if o.class != 0 {
		d.unlist(o)
	}
	if o.class = class; class == 0 {
		return
	}
	head := d.heads[class]
	if o.next = head; head != nil {
		head.prev = o
	}
	d.heads[class] = o
	d.counts[class]++
	d.nonzero[class/64] |= 1 << (class % 64)
}

func (d *debts) unlist(o *outbox) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		d.heads[o.class] = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	}
	o.prev, o.next = nil, nil
	d.counts[o.class]--
	if d.heads[o.class] == nil {
		d.nonzero[o.class/64] &^= 1 << (o.class % 64)
	}
}

// most is of a connection that owes most; nil: nobody owes enough.
func (d *debts) most() *outbox {
	for i := len(d.nonzero) - 1; i >= 0; i-- {
		if w := d.nonzero[i]; w != 0 {
			return d.heads[i*64+bits.Len64(w)-1]
		}
	}
	return nil
}
