package heads

import (
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// levels is which topics have a word at a level, and which have how many levels, by 32 bits of a
// hash: words that share one are told apart by who looks at the names.
type levels struct {
	words   []word // by hash
	n       int
	filling bool
	lists   [][]uint32
}

// word is one topic's number, or, with inList, the place of a list of them. Numbers are ascending,
// as topics come. topics 0: free.
type word struct {
	hash, topics uint32
}

const inList = 1 << 31

// wordHash of a word at a level, counted from 0.
func wordHash(level int, text string) uint32 {
	h := (xxhash.Sum64String(text) ^ uint64(level)) * 0x9e3779b97f4a7c15
	return uint32(h >> 32)
}

// countHash of how many levels a topic has.
func countHash(n int) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	return uint32(bits.Reverse64(xxhash.Sum64(b[:])))
}

func (l *levels) add(name string, n uint32) {
	level := 0
	for rest, more := name, true; more; level++ {
		var text string
		text, rest, more = strings.Cut(rest, "/")
		l.put(wordHash(level, text), n)
	}
	l.put(countHash(level), n)
}

func (l *levels) put(h, n uint32) {
	w := l.find(h)
	if w == nil {
		l.insert(word{h, n})
		return
	}
	if w.topics&inList == 0 {
		if w.topics == n { // two words of one topic that share a hash
			return
		}
		l.lists = append(l.lists, []uint32{w.topics, n})
		w.topics = inList | uint32(len(l.lists)-1)
		return
	}
	list := &l.lists[w.topics&^inList]
	if (*list)[len(*list)-1] == n {
		return
	}
	if len(*list) == cap(*list) { // by a quarter: lists are what an index mostly consists of
		grown := make([]uint32, len(*list), len(*list)+max(2, len(*list)/4))
		copy(grown, *list)
		*list = grown
	}
	*list = append(*list, n)
}

func wordPlace(h uint32, places int) int { return int(uint64(h) * uint64(places) >> 32) }

func (l *levels) find(h uint32) *word {
	if l.n == 0 {
		return nil
	}
	for at := wordPlace(h, len(l.words)); l.words[at].topics != 0; at = after(at, len(l.words)) {
		if l.words[at].hash == h {
			return &l.words[at]
		}
	}
	return nil
}

func (l *levels) insert(w word) {
	if full(l.n, len(l.words)) {
		if l.filling {
			l.resize(2 * larger(len(l.words)))
		} else {
			l.resize(larger(len(l.words)))
		}
	}
	l.place(w)
	l.n++
}

// fill has many be added by f, with room that is given back.
func (l *levels) fill(f func()) {
	l.filling = true
	f()
	l.filling = false
	if fits := larger(larger(l.n)); fits < len(l.words) {
		l.resize(fits)
	}
}

func (l *levels) resize(places int) {
	old := l.words
	l.words = make([]word, places)
	for _, o := range old {
		if o.topics != 0 {
			l.place(o)
		}
	}
}

func (l *levels) place(w word) {
	at := wordPlace(w.hash, len(l.words))
	for l.words[at].topics != 0 {
		at = after(at, len(l.words))
	}
	l.words[at] = w
}

// having are the numbers of topics with a word; alone makes room for one that is in no list.
func (l *levels) having(h uint32, alone *[1]uint32) []uint32 {
	switch w := l.find(h); {
	case w == nil:
		return nil
	case w.topics&inList != 0:
		return l.lists[w.topics&^inList]
	default:
		alone[0] = w.topics
		return alone[:]
	}
}
