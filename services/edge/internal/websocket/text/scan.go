package text

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays of a payload may be open at a place. Deeper ones are
// legal JSON, but not all parsers of clients take them. MaxJSON is how many bytes a payload may
// have that is looked at: at its worst that takes 1.5 ms (BenchmarkIsJSON).
const (
	MaxDepth = 512
	MaxJSON  = 256 << 10
)

// IsJSON reports whether a payload is sent as it is: a JSON value in UTF-8, with white space around
// it or without, no longer than MaxJSON and no deeper than MaxDepth. It takes linear time and
// allocates nothing.
func IsJSON(payload []byte) bool {
	if len(payload) > MaxJSON {
		return false
	}
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

// What values begin with.
const (
	aDigit = 1 + iota
	aZero
	aQuote
	anObject
	anArray
	aT
	anN
	anF
	aMinus
	aSpace
)

// begins has it by the first byte.
var begins = [256]uint8{
	'0': aZero, '1': aDigit, '2': aDigit, '3': aDigit, '4': aDigit, '5': aDigit, '6': aDigit, '7': aDigit, '8': aDigit, '9': aDigit, '"': aQuote,
	'{': anObject, '[': anArray, 't': aT, 'n': anN, 'f': anF, '-': aMinus, ' ': aSpace, '\n': aSpace, '\r': aSpace, '\t': aSpace,
}

// scan finds the end of the JSON value at b[i], or where it is wrong and why. high reports whether
// it has bytes that are not ASCII, which are in strings alone, and not looked at here.
//
// It keeps a bit for each object or array that is open, and jumps rather than calls itself. What is
// short, as most strings and numbers are, is read in place.
func scan(b []byte, i int) (end int, high bool, why string) {
	var (
		deep  [MaxDepth / 64]uint64 // levels of open that are full
		open  uint64                // the lowest bit is the innermost; 1 is an object
		depth uint
		c     byte
		seen  uint64 // the highest bits are of bytes of strings
		ok    bool
		isKey bool
	)
value:
	if i >= len(b) {
		return i, seen&highs != 0, notJSON
	}
	c = b[i]
	switch begins[c] {
	case aDigit, aZero:
		for i++; i < len(b) && b[i]-'0' <= 9; i++ {
			if c == '0' {
				return i, seen&highs != 0, notJSON
			}
		}
		if i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
			if i, ok = fraction(b, i); !ok {
				return i, seen&highs != 0, notJSON
			}
		}
	case aQuote:
		isKey = false
		goto text
	case anObject, anArray:
		if depth == MaxDepth {
			return i, seen&highs != 0, tooDeep
		}
		if depth&63 == 0 && depth > 0 {
			deep[depth>>6] = open
		}
		depth++
		open = open<<1 | uint64(c>>5&1) // '{' is 0x7b, '[' is 0x5b
		i++
		if i < len(b) && b[i] <= ' ' {
			i = space(b, i)
		}
		if i < len(b) && b[i] == c+2 { // '}' or ']'
			goto closed
		}
		if c == '{' {
			goto key
		}
		goto value
	case aT:
		if len(b)-i < 4 || string(b[i:i+4]) != "true" {
			return i, seen&highs != 0, notJSON
		}
		i += 4
	case anN:
		if len(b)-i < 4 || string(b[i:i+4]) != "null" {
			return i, seen&highs != 0, notJSON
		}
		i += 4
	case anF:
		if len(b)-i < 5 || string(b[i:i+5]) != "false" {
			return i, seen&highs != 0, notJSON
		}
		i += 5
	case aMinus:
		if i, ok = number(b, i); !ok {
			return i, seen&highs != 0, notJSON
		}
	case aSpace:
		i = space(b, i)
		goto value
	default:
		return i, seen&highs != 0, notJSON
	}

after:
	if depth == 0 {
		return i, seen&highs != 0, ""
	}
	if i >= len(b) {
		return i, seen&highs != 0, notJSON
	}
	c = b[i]
	if c == ',' {
		i++
		if open&1 != 0 {
			goto key
		}
		goto value
	}
	switch c {
	case '}', ']':
		if open&1 == uint64(c>>5&1) {
			goto closed
		}
		return i, seen&highs != 0, notJSON
	case ' ', '\n', '\r', '\t':
		i = space(b, i)
		goto after
	default:
		return i, seen&highs != 0, notJSON
	}

closed:
	i++
	depth--
	open >>= 1
	if depth&63 == 0 && depth > 0 {
		open = deep[depth>>6]
	}
	goto after

key:
	if i < len(b) && b[i] <= ' ' {
		i = space(b, i)
	}
	if i >= len(b) || b[i] != '"' {
		return i, seen&highs != 0, notJSON
	}
	isKey = true

text:
	i++
	if i < len(b) && b[i] == '"' {
		i++
		goto said
	}
	if i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if found := special(w); found != 0 {
			n := bits.TrailingZeros64(found)
			if b[i+n>>3] == '"' {
				i += n>>3 + 1
				seen |= w & (1<<n - 1)
				goto said
			}
		}
	}
	if i, seen, ok = stringEnd(b, i, seen); !ok {
		return i, seen&highs != 0, notJSON
	}

said:
	if !isKey {
		goto after
	}
	if i < len(b) && b[i] <= ' ' {
		i = space(b, i)
	}
	if i >= len(b) || b[i] != ':' {
		return i, seen&highs != 0, notJSON
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

// stringEnd is the place behind a string, looked for from i on, or where it is wrong. all is seen
// with the bits of the string's bytes.
func stringEnd(b []byte, i int, seen uint64) (end int, all uint64, ok bool) {
	for {
		n, bits := plain(b, i)
		seen |= bits
		if n >= len(b) {
			return n, seen, false
		}
		switch b[n] {
		case '"':
			return n + 1, seen, true
		case '\\':
			if i, ok = escapesEnd(b, n); !ok {
				return i, seen, false
			}
		default:
			return n, seen, false
		}
	}
}

// escapesEnd is the place behind the escapes that follow each other from i on, or where one is
// wrong.
func escapesEnd(b []byte, i int) (end int, ok bool) {
	for i+1 < len(b) && b[i] == '\\' {
		if unescaped[b[i+1]] != 0 {
			i += 2
			continue
		}
		if _, ok := hexRune(b, i); !ok {
			return i, false
		}
		i += 6
	}
	return i, i < len(b) && b[i] != '\\'
}

// unescaped are the characters that escapes of one letter stand for.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hexRune is what an escape \u at i stands for, with its four digits.
func hexRune(b []byte, i int) (r rune, ok bool) {
	if len(b)-i < 6 || b[i+1] != 'u' {
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
	return fraction(b, i)
}

// fraction is the place behind what may follow the digits of a number, at i.
func fraction(b []byte, i int) (end int, ok bool) {
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

// special has the highest bit of the first byte of w that is a quote, a backslash or a control
// character; above it are bits that mean nothing.
func special(w uint64) uint64 {
	quote, slash := w^'"'*ones, w^'\\'*ones
	return ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// plain is the first place from i on of a byte that can't stand in a string as it is: a quote, a
// backslash or a control character; len(b): there is none. seen has bits of highs where there are
// bytes before it that are not ASCII.
//
// It looks at eight bytes at a time.
func plain(b []byte, i int) (at int, seen uint64) {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if found := special(w); found != 0 {
			n := bits.TrailingZeros64(found)
			return i + n>>3, (seen | w&(1<<n-1)) & highs
		}
		seen |= w
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(b[i])
	}
	return i, seen & highs
}
