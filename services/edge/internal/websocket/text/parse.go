package text

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Parse appends the native frame that a text stands for. It takes frames of both sides, as what
// decodes native frames does. An error is a *code.Error, whose message may be sent back: it is
// ASCII, and names the place.
//
// The text is walked once, without recursion that it could deepen; the frame is at most three times
// as long as the text, and nothing else is allocated. So what the native protocol bounds may be
// checked afterwards.
func Parse(dst, text []byte) ([]byte, error) {
	p := parser{text: text, dst: dst}
	if f := p.frame(); f != nil {
		return dst, f.refusal()
	}
	return p.dst, nil
}

// parser is at a place of a text, and appends to dst what it finds.
type parser struct {
	text []byte
	at   int
	dst  []byte
}

// fault is why a text is refused.
type fault struct {
	code wirev1.Code
	at   int    // byte of the text
	path string // of members, from the frame on; each caller puts its own in front
	text string
}

// mostError is the longest message of a refusal.
const mostError = 180

func (f *fault) refusal() error {
	path := f.path
	if path != "" {
		path = ", " + path
	}
	text := fmt.Sprintf("at byte %d%s: %s", f.at, path, f.text)
	return code.New(f.code, text[:min(len(text), mostError)])
}

func (f *fault) in(path string) *fault {
	if f != nil {
		f.path = path + f.path
	}
	return f
}

func (p *parser) fail(text string) *fault { return p.failAt(p.at, text) }

func (p *parser) failAt(at int, text string) *fault {
	return &fault{code: wirev1.Code_CODE_BAD_FRAME, at: at, text: text}
}

// quoted is a name as an error may show it.
func quoted(name []byte) string {
	const most = 32
	if len(name) > most {
		return strconv.QuoteToASCII(string(name[:most])) + " and so on"
	}
	return strconv.QuoteToASCII(string(name))
}

// space passes over white space.
func (p *parser) space() { p.at = space(p.text, p.at) }

// take passes over a character if it is next.
func (p *parser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// takeWord passes over a word if it is next.
func (p *parser) takeWord(word string) bool {
	if len(p.text)-p.at >= len(word) && string(p.text[p.at:p.at+len(word)]) == word {
		p.at += len(word)
		return true
	}
	return false
}

// more passes over what stands between two members or elements; false: the end was next.
func (p *parser) more(end byte) (bool, *fault) {
	p.space()
	if p.take(end) {
		return false, nil
	}
	if !p.take(',') {
		return false, p.fail("a comma or " + strconv.QuoteRune(rune(end)) + " is expected")
	}
	p.space()
	return true, nil
}

// colon passes over it, and what is around it.
func (p *parser) colon() *fault {
	p.space()
	if !p.take(':') {
		return p.fail("a colon is expected")
	}
	p.space()
	return nil
}

const oneFrame = "a text is an object with one member, which is named after the frame"

func (p *parser) frame() *fault {
	p.space()
	if !p.take('{') {
		return p.fail(oneFrame)
	}
	p.space()
	at := p.at
	name, why := p.short()
	if why != nil {
		return why
	}
	f := byName[string(name)]
	if f == nil {
		why := p.failAt(at, "there is no frame "+quoted(name))
		why.code = wirev1.Code_CODE_UNKNOWN_FRAME
		return why
	}
	if why := p.colon(); why != nil {
		return why.in(f.name)
	}
	begin := len(p.dst)
	p.dst = append(p.dst, 0, 0, 0, 0)
	if why := p.object(&f.object); why != nil {
		return why.in(f.name)
	}
	p.space()
	if !p.take('}') {
		return p.fail(oneFrame)
	}
	if p.space(); p.at < len(p.text) {
		return p.fail("there is something behind the frame")
	}
	n := len(p.dst) - begin - wire.HeaderSize
	if n > wire.MaxBody {
		return &fault{code: wirev1.Code_CODE_FRAME_TOO_LARGE, path: f.name, text: "the frame is too long"}
	}
	wire.PutHeader(p.dst[begin:], n, f.t)
	return nil
}

// object appends the fields of an object.
func (p *parser) object(o *object) *fault {
	if !p.take('{') {
		return p.fail("an object is expected")
	}
	if p.space(); p.take('}') {
		return nil
	}
	var seen uint32 // numbers of fields
	for next := 0; ; next++ {
		at := p.at
		name, why := p.short()
		if why != nil {
			return why
		}
		i := o.find(name, next)
		if i < 0 {
			return p.failAt(at, o.unknown(name))
		}
		f := &o.fields[i]
		if seen&(1<<f.num) != 0 {
			return p.failAt(at, f.again()).in("." + f.name)
		}
		seen |= 1 << f.num
		if why := p.colon(); why != nil {
			return why.in("." + f.name)
		}
		if why := p.member(f); why != nil {
			return why.in("." + f.name)
		}
		if more, why := p.more('}'); !more {
			return why
		}
		next = i
	}
}

// find is the place of the field with a name, looked for from next on; below 0: there is none.
func (o *object) find(name []byte, next int) int {
	for range o.fields {
		if next >= len(o.fields) {
			next = 0
		}
		if o.fields[next].name == string(name) {
			return next
		}
		next++
	}
	return -1
}

// unknown says that there is no member of a name, and what may have been meant.
func (o *object) unknown(name []byte) string {
	text := "there is no member " + quoted(name)
	for i := range o.fields {
		if o.fields[i].proto == string(name) {
			return text + ", but " + o.fields[i].name
		}
	}
	return text
}

// again says that a member is there twice.
func (f *field) again() string {
	if f.kind == kindJSON || f.onlyRead {
		return "the payload is there twice: it is payload or payloadBase64"
	}
	return "the member is there twice"
}

func (p *parser) member(f *field) *fault {
	switch {
	case f.kind == kindJSON:
		return p.payload(f)
	case p.takeWord("null"):
		return nil
	case f.kind == kindMap:
		return p.entries(f)
	case f.list:
		return p.list(f)
	}
	begin := len(p.dst)
	p.dst = append(p.dst, f.tag)
	zero, why := p.value(f)
	if zero {
		p.dst = p.dst[:begin]
	}
	return why
}

// payload appends the JSON value that is next as it is written.
func (p *parser) payload(f *field) *fault {
	begin := p.at
	end, high, why := scan(p.text, begin)
	if why != "" {
		return p.failAt(end, why)
	}
	value := p.text[begin:end]
	if high && !utf8.Valid(value) {
		return p.fail(notUTF8)
	}
	p.at = end
	p.dst = protowire.AppendBytes(append(p.dst, f.tag), value)
	return nil
}

// list appends the elements of a list.
func (p *parser) list(f *field) *fault {
	if !p.take('[') {
		return p.fail("an array is expected")
	}
	if p.space(); p.take(']') {
		return nil
	}
	packed := f.packable()
	mark := len(p.dst)
	if packed {
		mark = p.open(f.tag)
	}
	for n, more := 0, true; more; n++ {
		if !packed {
			p.dst = append(p.dst, f.tag)
		}
		_, why := p.value(f)
		if why == nil {
			more, why = p.more(']')
		}
		if why != nil {
			return why.in("[" + strconv.Itoa(n) + "]")
		}
	}
	if packed {
		p.close(mark)
	}
	return nil
}

// mostDistinct is up to how many entries of a map their keys are compared. A frame with more is
// refused whatever they are: neither headers nor a profile may have so many.
const mostDistinct = 65

// entries appends the entries of a map.
func (p *parser) entries(f *field) *fault {
	if !p.take('{') {
		return p.fail("an object is expected")
	}
	if p.space(); p.take('}') {
		return nil
	}
	key, value := &f.object.fields[0], &f.object.fields[1]
	var keys [mostDistinct]struct{ begin, end int32 } // in dst
	for n, more := 0, true; more; n++ {
		at, mark := p.at, p.open(f.tag)
		p.dst = append(p.dst, key.tag)
		size, why := p.string()
		if why != nil {
			return why
		}
		end := len(p.dst)
		if why = p.colon(); why != nil {
			return why
		}
		p.dst = append(p.dst, value.tag)
		if _, why = p.value(value); why != nil {
			return why
		}
		if end += p.close(mark); n < mostDistinct {
			for _, k := range keys[:n] {
				if bytes.Equal(p.dst[k.begin:k.end], p.dst[end-size:end]) {
					return p.failAt(at, "the key is there twice")
				}
			}
			keys[n].begin, keys[n].end = int32(end-size), int32(end)
		}
		if more, why = p.more('}'); why != nil {
			return why
		}
	}
	return nil
}

// open begins a field whose length is not known yet, and returns the place of that.
func (p *parser) open(tag byte) (mark int) {
	p.dst = append(p.dst, tag, 0)
	return len(p.dst) - 1
}

// close puts the length of what was appended since open, and returns how far that was moved.
func (p *parser) close(mark int) (moved int) {
	n := len(p.dst) - mark - 1
	if n < 0x80 {
		p.dst[mark] = byte(n)
		return 0
	}
	var length [5]byte
	l := protowire.AppendVarint(length[:0], uint64(n))
	p.dst = append(p.dst, l[1:]...)
	copy(p.dst[mark+len(l):], p.dst[mark+1:mark+1+n])
	copy(p.dst[mark:], l)
	return len(l) - 1
}
