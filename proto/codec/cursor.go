package codec

import (
	"encoding/binary"
	"unicode/utf8"
)

// Wire types that occur.
const (
	kindVarint  = 0
	kindFixed64 = 1
	kindBytes   = 2
)

// cursor reads fields from the front of b. Once bad it stays so, and everything is empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() {
	c.b, c.bad = nil, true
}

// next is the next field's number and wire type; false at the end. Tags of more than two bytes are
// not expected here, nor numbers above 255.
func (c *cursor) next() (number, kind byte, ok bool) {
	if len(c.b) == 0 {
		return 0, 0, false
	}
	tag := uint16(c.b[0])
	if tag < 0x80 {
		c.b = c.b[1:]
		return byte(tag >> 3), byte(tag & 7), true
	}
	if len(c.b) < 2 || c.b[1] >= 0x10 {
		c.fail()
		return 0, 0, false
	}
	tag = tag&0x7f | uint16(c.b[1])<<7
	c.b = c.b[2:]
	return byte(tag >> 3), byte(tag & 7), true
}

func (c *cursor) varint() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most
		v := c.b[0]
		c.b = c.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) fixed64() uint64 {
	if len(c.b) < 8 {
		c.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(c.b)
	c.b = c.b[8:]
	return v
}

// bytes lie in what the cursor reads.
func (c *cursor) bytes() []byte {
	n := c.varint()
	if c.bad || n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// own is a bytes field as the generated code has it: nil where it is empty.
func (c *cursor) own() []byte {
	if v := c.bytes(); len(v) > 0 {
		return v
	}
	return nil
}

// text is a copy: whoever keeps a topic's name should not keep the message that it came in.
func (c *cursor) text() string {
	v := c.bytes()
	if !utf8.Valid(v) {
		c.fail()
		return ""
	}
	return string(v)
}

// count is the number of fields of that number in a message that has no others, all
// length-delimited; false where it has others.
func count(b []byte, number byte) (n int, ok bool) {
	c := cursor{b: b}
	for {
		field, kind, more := c.next()
		if !more {
			return n, !c.bad
		}
		if field != number || kind != kindBytes {
			return 0, false
		}
		c.bytes()
		n++
	}
}
