package heads

import "unsafe"

// names are texts of 1 to 255 bytes one after the other, each behind its length. What was added
// stays where it is.
type names struct {
	chunks [][]byte
}

const (
	// A name's place is its chunk and where it begins in it.
	nameChunkBits = 14
	nameChunk     = 1 << nameChunkBits
	maxName       = 255
)

func (n *names) add(name string) (place uint32) {
	last := len(n.chunks) - 1
	if last < 0 || len(n.chunks[last])+1+len(name) > nameChunk {
		n.chunks = append(n.chunks, nil)
		last++
	}
	c := n.chunks[last]
	if need := len(c) + 1 + len(name); need > cap(c) {
		room := need + need/4 // little, as shards with few topics are many
		if last > 0 {
			room = max(2*len(c), nameChunk/4)
		}
		grown := make([]byte, len(c), min(nameChunk, room))
		copy(grown, c)
		c = grown
	}
	place = uint32(last)<<nameChunkBits | uint32(len(c))
	c = append(c, byte(len(name)))
	n.chunks[last] = append(c, name...)
	return place
}

// view is the name at a place, without a copy. It is not kept: it would keep a whole chunk.
func (n *names) view(place uint32) string {
	c := n.chunks[place>>nameChunkBits][place&(nameChunk-1):]
	return unsafe.String(&c[1], int(c[0]))
}

func (n *names) is(place uint32, name string) bool { return n.view(place) == name }
