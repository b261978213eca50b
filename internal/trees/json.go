package trees

import (
	"bytes"
	"strconv"
)

// jsonReader reads JSON from left to right, without a tree of values in between: what a file of n
// bytes takes is what the caller keeps. It also reads NaN and Infinity, which XGBoost writes. The
// first fault makes every later read empty and ends every loop.
type jsonReader struct {
	data []byte
	at   int
	err  error
}

// jsonDepth of nested values that are skipped.
const jsonDepth = 64

func (j *jsonReader) fail(what string) {
	if j.err == nil {
		j.err = invalid("JSON: %s at byte %d", what, j.at)
	}
}

// peek skips white space and gives the next byte, 0 at the end.
func (j *jsonReader) peek() byte {
	for j.err == nil && j.at < len(j.data) {
		switch c := j.data[j.at]; c {
		case ' ', '\t', '\r', '\n':
			j.at++
		default:
			return c
		}
	}
	return 0
}

// accept reads c if it is next.
func (j *jsonReader) accept(c byte) bool {
	if j.peek() != c {
		return false
	}
	j.at++
	return true
}

func (j *jsonReader) expect(c byte) {
	if !j.accept(c) {
		j.fail("no " + strconv.Quote(string(c)))
	}
}

// object calls member for each key; it has to read the value.
func (j *jsonReader) object(member func(key string)) {
	j.expect('{')
	if j.accept('}') {
		return
	}
	for j.err == nil {
		key := j.text()
		j.expect(':')
		if j.err != nil {
			return
		}
		if member(key); !j.accept(',') {
			break
		}
	}
	j.expect('}')
}

// array calls element for each element; it has to read it.
func (j *jsonReader) array(element func()) {
	j.expect('[')
	if j.accept(']') {
		return
	}
	for j.err == nil {
		if element(); !j.accept(',') {
			break
		}
	}
	j.expect(']')
}

// span is a string's bytes between its quotes, as they stand.
func (j *jsonReader) span() []byte {
	j.expect('"')
	start := j.at
	for j.err == nil && j.at < len(j.data) {
		switch j.data[j.at] {
		case '\\':
			j.at++
		case '"':
			j.at++
			return j.data[start : j.at-1]
		}
		j.at++
	}
	j.at = min(j.at, len(j.data))
	j.fail("a string that does not end")
	return nil
}

func (j *jsonReader) text() string {
	span := j.span()
	if bytes.IndexByte(span, '\\') < 0 {
		return string(span)
	}
	return j.unescape(span)
}

// scalar is a number, a string's content, true, false or null, as it stands.
func (j *jsonReader) scalar() []byte {
	if j.peek() == '"' {
		return j.span()
	}
	start := j.at
	for j.err == nil && j.at < len(j.data) && !endsScalar(j.data[j.at]) {
		j.at++
	}
	if start == j.at {
		j.fail("no value")
	}
	return j.data[start:j.at]
}

func endsScalar(c byte) bool {
	switch c {
	case ',', ']', '}', ':', '[', '{', '"', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// number reads a number, rounded to float32, also one in quotes, as XGBoost's parameters are.
func (j *jsonReader) number() float64 {
	s := j.scalar()
	if j.err != nil {
		return 0
	}
	switch string(s) {
	case "true":
		return 1
	case "false":
		return 0
	}
	v, err := strconv.ParseFloat(string(s), 32)
	if err != nil {
		j.fail("not a number that fits into a float32")
	}
	return v
}

// whole reads a whole number, also one in quotes, true or false.
func (j *jsonReader) whole() int64 {
	s := j.scalar()
	if j.err != nil {
		return 0
	}
	switch string(s) {
	case "true":
		return 1
	case "false":
		return 0
	}
	v, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil {
		j.fail("not a whole number")
	}
	return v
}

// skip reads a value of any kind.
func (j *jsonReader) skip() { j.skipAt(0) }

func (j *jsonReader) skipAt(depth int) {
	if depth > jsonDepth {
		j.fail("values nested too deeply")
		return
	}
	switch j.peek() {
	case '{':
		j.object(func(string) { j.skipAt(depth + 1) })
	case '[':
		j.array(func() { j.skipAt(depth + 1) })
	default:
		j.scalar()
	}
}
