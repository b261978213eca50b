package trees

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Sizes of the format's structures in bytes. All numbers are little-endian and 4 bytes long where
// it isn't said.
const (
	learnerParam = 136
	forestParam  = 160
	treeParam    = 148
	binaryNode   = 20
	binaryStat   = 16
)

// binaryFile is an XGBoost binary model while it is read. The first fault makes every later read
// empty.
type binaryFile struct {
	*forest
	rest []byte
	err  error
}

func parseXGBoostBinary(data []byte, limits Limits) (*Model, error) {
	b := &binaryFile{forest: newForest(XGBoostBinary, limits), rest: bytes.TrimPrefix(data, []byte("binf"))}
	b.single = true
	head, booster := b.head()
	if b.err != nil {
		return nil, b.err
	}
	if err := b.apply(head); err != nil {
		return nil, err
	}
	count := b.forestParam()
	for range count {
		if b.tree(); b.err != nil {
			return nil, b.err
		}
	}
	for i, group := range b.take(4 * count).words() {
		b.trees[i].output = int32(group)
	}
	if booster == "dart" && count > 0 {
		b.weights(count)
	}
	if b.err != nil {
		return nil, b.err
	}
	// What follows are attributes and names of metrics.
	return b.finish(head.columns, nil)
}

// record is a run of bytes of the file.
type record []byte

func (r record) word(i int) uint32 { return binary.LittleEndian.Uint32(r[4*i:]) }

func (r record) number(i int) float32 { return math.Float32frombits(r.word(i)) }

func (r record) words() []uint32 {
	out := make([]uint32, len(r)/4)
	for i := range out {
		out[i] = r.word(i)
	}
	return out
}

// take cuts n bytes off the file; nil where there are fewer.
func (b *binaryFile) take(n int) record {
	if b.err == nil && (n < 0 || n > len(b.rest)) {
		b.err = invalid("the file is incomplete, or is not a model")
	}
	if b.err != nil {
		return nil
	}
	r := b.rest[:n]
	b.rest = b.rest[n:]
	return r
}

// length reads 8 bytes that say how many of size follow.
func (b *binaryFile) length(size int) int {
	r := b.take(8)
	if b.err != nil {
		return 0
	}
	n := binary.LittleEndian.Uint64(r)
	if n > uint64(len(b.rest)/size) {
		b.err = invalid("the file is incomplete, or is not a model")
		return 0
	}
	return int(n)
}

func (b *binaryFile) text() string { return string(b.take(b.length(1))) }

// head reads what the learner says: base score, columns, classes, …, version, targets, then the
// names of objective and booster.
func (b *binaryFile) head() (h *xgboostHead, booster string) {
	r := b.take(learnerParam)
	if b.err != nil {
		return nil, ""
	}
	h = &xgboostHead{
		bases: []float32{r.number(0)}, columns: int(r.word(1)), outputs: int(max(r.word(2), 1)),
		major: int(r.word(5)), minor: int(r.word(6)),
	}
	// Before 1.0 there was no version, and what is now the targets' place had no meaning.
	if h.margin = h.major == 0; !h.margin {
		h.outputs = max(h.outputs, int(r.word(7)))
	}
	h.objective = b.text()
	booster = b.text()
	if b.err == nil && h.major > 3 {
		b.err = invalid("a binary model of version %d.%d", h.major, h.minor)
	}
	if b.err == nil {
		b.err = checkBooster(booster)
	}
	return h, booster
}

// forestParam gives the number of trees.
func (b *binaryFile) forestParam() int {
	r := b.take(forestParam)
	if b.err != nil {
		return 0
	}
	count := int(r.word(0))
	if count > b.limits.Trees {
		b.err = beyond("trees", count, b.limits.Trees)
		return 0
	}
	if leaf := r.word(7); leaf > 1 {
		b.err = unsupported("leaves that are vectors of %d", leaf)
		return 0
	}
	return count
}

func (b *binaryFile) tree() {
	p := b.take(treeParam)
	if b.err != nil {
		return
	}
	if p.word(0) > 1 || p.word(5) > 1 {
		b.err = unsupported("trees of %d roots and leaves that are vectors of %d", p.word(0), p.word(5))
		return
	}
	count := int(p.word(1))
	if b.err = b.room(count); b.err != nil {
		return
	}
	splits, stats := b.take(count*binaryNode), b.take(count*binaryStat)
	if b.err != nil {
		return
	}
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i] = binaryToNode(splits[i*binaryNode:], stats[i*binaryStat:], i)
	}
	b.err = b.add(nodes)
}

// binaryToNode: a node is its parent, its children, its column with a bit for the default
// direction, and its threshold or value; its statistics are the gain, the cover, the weight and the
// number of leaves below.
func binaryToNode(split, stat record, place int) node {
	n := node{
		left: int32(split.word(1)), right: int32(split.word(2)), number: int32(place),
		feature: int32(split.word(3) &^ (1 << 31)), defaultLeft: split.word(3)>>31 != 0,
		missing: missingNaN, cover: float64(stat.number(1)),
	}
	if n.left == -1 {
		n.value = float64(split.number(4))
	} else {
		n.threshold = float64(split.number(4))
	}
	return n
}

// weights of a DART's trees.
func (b *binaryFile) weights(count int) {
	n := b.length(4)
	r := b.take(4 * n)
	if b.err == nil && n != count {
		b.err = invalid("%d weights for %d trees", n, count)
	}
	for i := 0; i < n && b.err == nil; i++ {
		b.err = b.weigh(i, r.number(i))
	}
}
