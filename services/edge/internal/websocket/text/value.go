package text

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	notUTF8   = "it is not UTF-8"
	notBase64 = "a string in base64 is expected"
	notFloat  = "a number is expected"
)

// value appends the value that is next, without a tag. zero reports whether it is the one that a
// field has where it is left out.
func (p *parser) value(f *field) (zero bool, why *fault) {
	switch f.kind {
	case kindString:
		n, why := p.string()
		return n == 0, why
	case kindBytes:
		return p.base64()
	case kindBool:
		v := p.takeWord("true")
		if !v && !p.takeWord("false") {
			return false, p.fail("true or false is expected")
		}
		p.dst = append(p.dst, byte(protowire.EncodeBool(v)))
		return !v, nil
	case kindUint32:
		v, ok := p.uint(math.MaxUint32)
		if !ok {
			return false, p.fail("a whole number from 0 to 4294967295 is expected")
		}
		p.dst = protowire.AppendVarint(p.dst, v)
		return v == 0, nil
	case kindUint64, kindFixed64:
		v, ok := p.uint(math.MaxUint64)
		if !ok {
			return false, p.fail("a whole number from 0 to 18446744073709551615, in a string or not, is expected")
		}
		if f.kind == kindUint64 {
			p.dst = protowire.AppendVarint(p.dst, v)
		} else {
			p.dst = protowire.AppendFixed64(p.dst, v)
		}
		return v == 0, nil
	case kindDouble, kindFloat:
		return p.float(f)
	case kindEnum:
		return p.enum(f)
	default: // kindObject; kindMap is no value
		mark := len(p.dst)
		p.dst = append(p.dst, 0)
		if why := p.object(f.object); why != nil {
			return false, why
		}
		p.close(mark)
		return false, nil
	}
}

// string appends the string that is next, behind its length, which it returns.
func (p *parser) string() (n int, why *fault) {
	mark := len(p.dst)
	p.dst = append(p.dst, 0)
	if why := p.characters(); why != nil {
		return 0, why
	}
	n = len(p.dst) - mark - 1
	p.close(mark)
	return n, nil
}

// short is the string that is next, for those that are looked at and not kept: it is valid until
// something is appended.
func (p *parser) short() ([]byte, *fault) {
	if p.at < len(p.text) && p.text[p.at] == '"' {
		begin := p.at + 1
		if end, seen := plain(p.text, begin); seen == 0 && end < len(p.text) && p.text[end] == '"' {
			p.at = end + 1
			return p.text[begin:end], nil
		}
	}
	begin := len(p.dst)
	why := p.characters()
	s := p.dst[begin:]
	p.dst = p.dst[:begin]
	return s, why
}

// characters appends what a string says.
func (p *parser) characters() *fault {
	if !p.take('"') {
		return p.fail("a string is expected")
	}
	for {
		begin := p.at
		end, seen := plain(p.text, begin)
		chunk := p.text[begin:end]
		if seen != 0 && !utf8.Valid(chunk) {
			return p.fail(notUTF8)
		}
		p.dst = append(p.dst, chunk...)
		p.at = end
		if end == len(p.text) {
			return p.fail("the string has no end")
		}
		switch p.text[end] {
		case '"':
			p.at++
			return nil
		case '\\':
			if !p.escape() {
				return p.fail("there is no such escape")
			}
		default:
			return p.fail("a control character in a string must be escaped")
		}
	}
}

// escape appends what the escape that is next stands for. A half of a surrogate pair alone is none.
func (p *parser) escape() bool {
	at := p.at
	if at+1 >= len(p.text) {
		return false
	}
	if c := unescaped[p.text[at+1]]; c != 0 {
		p.dst = append(p.dst, c)
		p.at += 2
		return true
	}
	r, ok := hexRune(p.text, at)
	if !ok {
		return false
	}
	p.at += 6
	if utf16.IsSurrogate(r) {
		low, isEscape := hexRune(p.text, p.at)
		if r = utf16.DecodeRune(r, low); !isEscape || p.text[p.at] != '\\' || r == utf8.RuneError {
			p.at = at
			return false
		}
		p.at += 6
	}
	p.dst = utf8.AppendRune(p.dst, r)
	return true
}

// base64 appends bytes behind their length: either alphabet, with padding or without.
func (p *parser) base64() (zero bool, why *fault) {
	at, mark := p.at, len(p.dst)
	p.dst = append(p.dst, 0)
	if why := p.characters(); why != nil {
		return false, why
	}
	s := p.dst[mark+1:]
	encoding := base64.StdEncoding
	if bytes.ContainsAny(s, "-_") {
		encoding = base64.URLEncoding
	}
	if len(s)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	if bytes.ContainsAny(s, "\r\n") { // which the decoder passes over
		return false, p.failAt(at, notBase64)
	}
	n, err := encoding.Decode(s, s) // what is written stays behind what is read
	if err != nil {
		return false, p.failAt(at, notBase64)
	}
	p.dst = p.dst[:mark+1+n]
	p.close(mark)
	return n == 0, nil
}

// uint passes over a whole number, in a string or not.
func (p *parser) uint(most uint64) (v uint64, ok bool) {
	at := p.at
	quoted := p.take('"')
	begin := p.at
	for p.at < len(p.text) && p.text[p.at]-'0' <= 9 {
		d := uint64(p.text[p.at] - '0')
		if v > (most-d)/10 {
			p.at = at
			return 0, false
		}
		v = v*10 + d
		p.at++
	}
	n := p.at - begin
	end := byte(0)
	if p.at < len(p.text) {
		end = p.text[p.at]
	}
	if n == 0 || n > 1 && p.text[begin] == '0' || quoted && !p.take('"') || !quoted && (end == '.' || end|0x20 == 'e') {
		p.at = at
		return 0, false
	}
	return v, true
}

// float appends a number, in a string or not, or one of the strings for what JSON has no number
// for.
func (p *parser) float(f *field) (zero bool, why *fault) {
	at := p.at
	var s []byte
	if at < len(p.text) && p.text[at] == '"' {
		if s, why = p.short(); why != nil {
			return false, why
		}
	} else {
		end, ok := number(p.text, at)
		if !ok {
			return false, p.fail(notFloat)
		}
		s, p.at = p.text[at:end], end
	}
	var v float64
	switch string(s) {
	case "NaN":
		v = math.NaN()
	case "Infinity":
		v = math.Inf(1)
	case "-Infinity":
		v = math.Inf(-1)
	default:
		if end, ok := number(s, 0); !ok || end != len(s) {
			return false, p.failAt(at, notFloat)
		}
		size := 64
		if f.kind == kindFloat {
			size = 32
		}
		var err error
		if v, err = strconv.ParseFloat(unsafe.String(unsafe.SliceData(s), len(s)), size); err != nil {
			return false, p.failAt(at, "the number is too large")
		}
	}
	if f.kind == kindFloat {
		p.dst = protowire.AppendFixed32(p.dst, math.Float32bits(float32(v)))
	} else {
		p.dst = protowire.AppendFixed64(p.dst, math.Float64bits(v))
	}
	return math.Float64bits(v) == 0, nil
}

// enum appends one by its name, or by its number.
func (p *parser) enum(f *field) (zero bool, why *fault) {
	const expected = "the name of a value is expected"
	at := p.at
	if at < len(p.text) && p.text[at] == '"' {
		name, why := p.short()
		if why != nil {
			return false, why
		}
		for v, known := range f.names {
			if known == string(name) {
				p.dst = protowire.AppendVarint(p.dst, uint64(v))
				return v == 0, nil
			}
		}
		return false, p.failAt(at, expected+", as "+f.names[min(1, len(f.names)-1)]+", and not "+quoted(name))
	}
	minus := p.take('-')
	if p.at < len(p.text) && p.text[p.at] == '"' {
		return false, p.failAt(at, expected)
	}
	v, ok := p.uint(math.MaxInt32)
	if !ok {
		return false, p.failAt(at, expected)
	}
	if minus {
		v = -v
	}
	p.dst = protowire.AppendVarint(p.dst, v)
	return v == 0, nil
}
