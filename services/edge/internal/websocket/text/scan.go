package text

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays of a payload may be open at a place. Deeper ones are legal
// JSON, but not all parsers of clients take them.
const MaxDepth = 512

// IsJSON reports whether a payload is sent as it is: a JSON value in UTF-8, with white space around
// it or without, no deeper than MaxDepth. It takes linear time and allocates nothing.
func IsJSON(payload []byte) bool {
	end, high, why := scan(payload, space(payload, 0))
	if why != "" || space(payload, end) != len(payload) {
		return false
	}
	return !high || utf8.Valid(payload)
}

// Why there is no JSON value at a place.
const (
	notJSON = "a JSON value is expected"
	tooDeep = "it is deeper than 512 objects and arrays"
)

// scan finds the end of the JSON value at b[i], or where it is wrong and why. high reports whether
// it has bytes that are not ASCII, which are in strings alone, and not looked at here.
//
// It keeps a bit for each object or array that is open, and jumps rather than calls itself.
func scan(b []byte, i int) (end int, high bool, why string) {
	var (
		open     [MaxDepth / 64]uint64 // bits: 1 is an object
		depth    int
		inObject bool
		isHigh   bool
		ok       bool
	)
value:
	i = space(b, i)
	if i >= len(b) {
		return i, high, notJSON
	}
	switch c := b[i]; c {
	case '"':
		if i, isHigh, ok = stringEnd(b, i+1); !ok {
			return i, high, notJSON
		}
		high = high || isHigh
	case '{', '[':
		if depth == MaxDepth {
			return i, high, tooDeep
		}
		inObject = c == '{'
		if bit := uint64(1) << (depth & 63); inObject {
			open[depth>>6] |= bit
		} else {
			open[depth>>6] &^= bit
		}
		depth++
		i = space(b, i+1)
		if i < len(b) && b[i] == c+2 { // '}' or ']'
			goto closed
		}
		if inObject {
			goto key
		}
		goto value
	case 't', 'f', 'n':
		word := "true"
		switch c {
		case 'f':
			word = "false"
		case 'n':
			word = "null"
		}
		if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
			return i, high, notJSON
		}
		i += len(word)
	default:
		if i, ok = number(b, i); !ok {
			return i, high, notJSON
		}
	}

after:
	if depth == 0 {
		return i, high, ""
	}
	i = space(b, i)
	if i >= len(b) {
		return i, high, notJSON
	}
	switch b[i] {
	case ',':
		i++
		if inObject {
			goto key
		}
		goto value
	case '}':
		if !inObject {
			return i, high, notJSON
		}
	case ']':
		if inObject {
			return i, high, notJSON
		}
	default:
		return i, high, notJSON
	}

closed:
	i++
	depth--
	if depth > 0 {
		inObject = open[(depth-1)>>6]&(1<<((depth-1)&63)) != 0
	}
	goto after

key:
	i = space(b, i)
	if i >= len(b) || b[i] != '"' {
		return i, high, notJSON
	}
	if i, isHigh, ok = stringEnd(b, i+1); !ok {
		return i, high, notJSON
	}
	high = high || isHigh
	i = space(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, high, notJSON
	}
	i++
	goto value
}

// space is the first place from i on without white space.
func space(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// stringEnd is the place behind a string whose first character is at i, or where it is wrong.
func stringEnd(b []byte, i int) (end int, high, ok bool) {
	for {
		n, isHigh := plain(b, i)
		high = high || isHigh
		if n >= len(b) {
			return n, high, false
		}
		switch b[n] {
		case '"':
			return n + 1, high, true
		case '\\':
			if i, ok = escapeEnd(b, n); !ok {
				return i, high, false
			}
		default:
			return n, high, false
		}
	}
}

// escapeEnd is the place behind the escape at i, or where it is wrong.
func escapeEnd(b []byte, i int) (end int, ok bool) {
	if i+1 >= len(b) {
		return len(b), false
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, true
	case 'u':
		if _, ok := hexRune(b, i); ok {
			return i + 6, true
		}
	}
	return i, false
}

// hexRune is what the four digits of the escape at b[i] stand for.
func hexRune(b []byte, i int) (r rune, ok bool) {
	if len(b)-i < 6 {
		return 0, false
	}
	for _, c := range b[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number is the place behind the number at i, or where it is wrong.
func number(b []byte, i int) (end int, ok bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b) || b[i]-'0' > 9:
		return i, false
	case b[i] == '0':
		i++
	default:
		i = digits(b, i)
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b, i+1)
		if n == i+1 {
			return n, false
		}
		i = n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b, i)
		if n == i {
			return n, false
		}
		i = n
	}
	return i, true
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plain is the first place from i on of a byte that can't stand in a string as it is: a quote, a
// backslash or a control character; len(b): there is none. high reports whether there are bytes
// before it that are not ASCII.
//
// It looks at eight bytes at a time. The lowest bit that is found is right; those above it may be
// carried from it.
func plain(b []byte, i int) (at int, high bool) {
	var seen uint64
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^'"'*ones, w^'\\'*ones
		found := ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
		if found != 0 {
			n := bits.TrailingZeros64(found)
			seen |= w & (1<<(n&^7) - 1)
			return i + n>>3, seen&highs != 0
		}
		seen |= w
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(b[i])
	}
	return i, seen&highs != 0
}
