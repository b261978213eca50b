package expr

import (
	"unicode/utf8"
)

// Bounds of a payload that is parsed. Beyond them payload is null.
const (
	MaxPayload = 1 << 20 // bytes
	MaxValues  = 16_384  // values and names of members
	MaxDepth   = 64      // objects and arrays in each other
)

type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeFalse
	nodeTrue
	nodeNumber
	nodeText
	nodeEscapedText // with a backslash in it
	nodeArray
	nodeObject
)

// node is one value, or the name of a member, which stands before its value.
type node struct {
	kind       nodeKind
	start, end uint32 // in document.text: of a number, or of what is between the quotes of a text
	next       uint32 // the node behind this one and all it contains
}

// document is a parsed JSON text: its nodes in the order of the text. Memory is kept from one to
// the next.
type document struct {
	text  string
	nodes []node // empty where there is no JSON
	cel   celValue
}

func (d *document) clear() {
	d.text, d.nodes, d.cel = "", d.nodes[:0], celValue{}
}

// parse reads payload, or leaves the document empty.
func (d *document) parse(payload []byte) {
	d.clear()
	if len(payload) == 0 || len(payload) > MaxPayload || !utf8.Valid(payload) {
		return
	}
	d.text = string(payload)
	r := reader{text: d.text, nodes: d.nodes}
	ok := r.document()
	d.nodes = r.nodes
	if !ok {
		d.clear()
	}
}

// reader reads JSON as RFC 8259 has it, without recursion.
type reader struct {
	text  string
	at    int
	nodes []node
	open  [MaxDepth]uint32 // objects and arrays that are not closed
	depth int
}

func (r *reader) document() bool {
	for {
		r.skip()
		opened, ok := r.value()
		if !ok {
			return false
		}
		if opened {
			if !r.closesAtOnce() {
				if !r.name() {
					return false
				}
				continue
			}
			r.close()
		}
		more, ok := r.follow()
		if !ok || !more {
			return ok
		}
	}
}

// follow goes on behind a value: more reports whether another one comes.
func (r *reader) follow() (more, ok bool) {
	for {
		r.skip()
		if r.depth == 0 {
			return false, r.at == len(r.text)
		}
		switch c := r.peek(); {
		case c == ',':
			r.at++
			r.skip()
			return true, r.name()
		case c == r.closer():
			r.close()
		default:
			return false, false
		}
	}
}

func (r *reader) skip() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek is the byte that comes, 0 at the end.
func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *reader) closer() byte {
	if r.nodes[r.open[r.depth-1]].kind == nodeObject {
		return '}'
	}
	return ']'
}

func (r *reader) closesAtOnce() bool {
	r.skip()
	return r.peek() == r.closer()
}

func (r *reader) close() {
	r.at++
	r.depth--
	r.nodes[r.open[r.depth]].next = uint32(len(r.nodes))
}

// name reads the name of a member and its colon; in an array there is none.
func (r *reader) name() bool {
	if r.closer() == ']' {
		return true
	}
	if r.peek() != '"' || !r.string() {
		return false
	}
	r.skip()
	if r.peek() != ':' {
		return false
	}
	r.at++
	return true
}

// value reads a scalar, or opens an object or array.
func (r *reader) value() (opened, ok bool) {
	switch c := r.peek(); c {
	case '{':
		return true, r.opens(nodeObject)
	case '[':
		return true, r.opens(nodeArray)
	case '"':
		return false, r.string()
	case 't':
		return false, r.literal("true", nodeTrue)
	case 'f':
		return false, r.literal("false", nodeFalse)
	case 'n':
		return false, r.literal("null", nodeNull)
	default:
		return false, r.number()
	}
}

func (r *reader) opens(kind nodeKind) bool {
	if r.depth == MaxDepth || !r.add(kind, r.at, r.at) {
		return false
	}
	r.open[r.depth] = uint32(len(r.nodes) - 1)
	r.depth++
	r.at++
	return true
}

func (r *reader) add(kind nodeKind, start, end int) bool {
	if len(r.nodes) == MaxValues {
		return false
	}
	r.nodes = append(r.nodes, node{kind: kind, start: uint32(start), end: uint32(end), next: uint32(len(r.nodes) + 1)})
	return true
}

func (r *reader) literal(word string, kind nodeKind) bool {
	if len(r.text)-r.at < len(word) || r.text[r.at:r.at+len(word)] != word {
		return false
	}
	r.at += len(word)
	return r.add(kind, r.at, r.at)
}
