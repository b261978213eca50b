package interest

import "math/bits"

// wildParts bounds how much is moved at once when the index of nodes grows.
const wildParts = 1 << 8

// wildPart finds children by their parent and level: a hash table with linear probing.
type wildPart struct {
	refs []ref
	n    int
}

// ref leads to a node, if the hash is the right one. id 0: free.
type ref struct{ hash, id uint32 }

// mix hashes a child's name. Both factors are odd and have nothing else to them.
func mix(parent uint32, l level) uint32 {
	hi, lo := bits.Mul64(l.keyed^uint64(parent)*0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return uint32((hi ^ lo) >> 16)
}

func partOf(parent uint32, l level) uint32 { return mix(parent, l) % wildParts }

// child is a node's for a level; 0: none.
func (w *wild) child(id uint32, l level) uint32 {
	hash := mix(id, l)
	p := &w.index[hash%wildParts]
	if p.n == 0 {
		return 0
	}
	for at := p.home(hash); p.refs[at].id != 0; at = p.after(at) {
		if p.refs[at].hash == hash {
			if n := w.at(p.refs[at].id); n.parent == id && n.level == l {
				return p.refs[at].id
			}
		}
	}
	return 0
}

func (p *wildPart) home(hash uint32) int { return int(uint64(hash) * uint64(len(p.refs)) >> 32) }

func (p *wildPart) after(at int) int {
	if at++; at == len(p.refs) {
		return 0
	}
	return at
}

func (p *wildPart) put(hash, id uint32) {
	if (p.n+1)*4 > len(p.refs)*3 {
		p.resize(max(minEntries, len(p.refs)+len(p.refs)/3))
	}
	p.n++
	p.place(ref{hash, id})
}

func (p *wildPart) place(r ref) {
	at := p.home(r.hash)
	for p.refs[at].id != 0 {
		at = p.after(at)
	}
	p.refs[at] = r
}

func (p *wildPart) resize(size int) {
	old := p.refs
	p.refs = make([]ref, size)
	for _, r := range old {
		if r.id != 0 {
			p.place(r)
		}
	}
}

// drop removes what put placed, and closes the hole.
func (p *wildPart) drop(hash, id uint32) {
	hole := p.home(hash)
	for p.refs[hole].id != id {
		hole = p.after(hole)
	}
	p.n--
	size := len(p.refs)
	for at := p.after(hole); p.refs[at].id != 0; at = p.after(at) {
		if away(p.home(p.refs[at].hash), at, size) >= away(hole, at, size) {
			p.refs[hole] = p.refs[at]
			hole = at
		}
	}
	p.refs[hole] = ref{}
	if want := max(minEntries, p.n*3/2); size > 2*want {
		p.resize(want)
	}
}
