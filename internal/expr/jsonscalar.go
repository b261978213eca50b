package expr

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a text that begins here.
func (r *reader) string() bool {
	r.at++
	start, kind := r.at, nodeText
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			return r.add(kind, start, r.at-1)
		case c == '\\':
			kind = nodeEscapedText
			if !r.escape() {
				return false
			}
		case c < ' ':
			return false
		default:
			r.at++
		}
	}
	return false
}

func (r *reader) escape() bool {
	r.at++
	switch r.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		r.at++
		return true
	case 'u':
		for range 4 {
			r.at++
			if !isHex(r.peek()) {
				return false
			}
		}
		r.at++
		return true
	}
	return false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// number reads -?(0|[1-9]digits)(.digits)?([eE][+-]?digits)?.
func (r *reader) number() bool {
	start := r.at
	if r.peek() == '-' {
		r.at++
	}
	if r.peek() == '0' {
		r.at++
	} else if !r.digits() {
		return false
	}
	if r.peek() == '.' {
		r.at++
		if !r.digits() {
			return false
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		r.at++
		if c := r.peek(); c == '+' || c == '-' {
			r.at++
		}
		if !r.digits() {
			return false
		}
	}
	return r.add(nodeNumber, start, r.at)
}

func (r *reader) digits() bool {
	start := r.at
	for c := r.peek(); c >= '0' && c <= '9'; c = r.peek() {
		r.at++
	}
	return r.at > start
}

// number of a node; one too large for a double is infinite.
func (d *document) number(n *node) float64 {
	text := d.text[n.start:n.end]
	if len(text) <= 15 {
		if v, ok := smallInteger(text); ok {
			return v
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) {
		return 0
	}
	return v
}

// smallInteger reads up to 15 digits, which a double holds exactly.
func smallInteger(text string) (float64, bool) {
	var n int64
	for i := range len(text) {
		c := text[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return float64(n), true
}

// string of a node that is a text.
func (d *document) string(n *node) string {
	raw := d.text[n.start:n.end]
	if n.kind == nodeText {
		return raw
	}
	var s strings.Builder
	for raw != "" {
		r, size := unescape(raw)
		s.WriteRune(r)
		raw = raw[size:]
	}
	return s.String()
}

// named reports whether a node that is a text is name, without making a string of it.
func (d *document) named(n *node, name string) bool {
	raw := d.text[n.start:n.end]
	if n.kind == nodeText {
		return raw == name
	}
	for raw != "" {
		r, size := unescape(raw)
		got, width := utf8.DecodeRuneInString(name)
		if r != got || width == 0 {
			return false
		}
		raw, name = raw[size:], name[width:]
	}
	return name == ""
}

// unescape is the first code point of a text as it stands in valid JSON, and how many bytes it
// takes there. Half a surrogate pair is U+FFFD.
func unescape(raw string) (rune, int) {
	if raw[0] != '\\' {
		return utf8.DecodeRuneInString(raw)
	}
	switch c := raw[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(raw[2:6])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(raw[8:12])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	default:
		return rune(c), 2
	}
}

func hex4(digits string) rune {
	var r rune
	for i := range len(digits) {
		c := digits[i] | ' ' // small letters; digits stay as they are
		if c > '9' {
			c -= 'a' - '9' - 1
		}
		r = r<<4 | rune(c-'0')
	}
	return r
}

// member of an object: the index of its value. Of several with the same name it is the last. steps
// is how many members there are.
func (d *document) member(object uint32, name string) (value, steps uint32, found bool) {
	end := d.nodes[object].next
	for i := object + 1; i < end; i = d.nodes[i+1].next {
		steps++
		if d.named(&d.nodes[i], name) {
			value, found = i+1, true
		}
	}
	return value, steps, found
}

// element of an array by its place.
func (d *document) element(array uint32, place int64) (value, steps uint32, found bool) {
	end := d.nodes[array].next
	for i := array + 1; i < end; i = d.nodes[i].next {
		if int64(steps) == place {
			return i, steps, true
		}
		steps++
	}
	return 0, steps, false
}
