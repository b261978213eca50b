package text

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// append appends the members of an encoded message that are among fields, each once: of fields that
// are there several times the last counts, as everywhere in protobuf.
func (o *object) append(dst, body []byte, fields []field) ([]byte, error) {
	// Where a number's first field begins, plus 1, and where the value of its last one does.
	var first, last [maxNumber + 1]int32
	for at := 0; at < len(body); {
		num, typ, tag := protowire.ConsumeTag(body[at:])
		if tag < 0 {
			return dst, ErrMalformed
		}
		size := protowire.ConsumeFieldValue(num, typ, body[at+tag:])
		if size < 0 {
			return dst, ErrMalformed
		}
		if num <= maxNumber {
			if f := o.byNumber[num]; f != nil && (typ == f.wire || typ == protowire.BytesType && f.packable()) {
				if last[num] = int32(at + tag); first[num] == 0 {
					first[num] = int32(at + 1)
				}
			}
		}
		at += tag + size
	}
	var err error
	for i := range fields {
		f := &fields[i]
		at := last[f.num] // no value is at 0
		switch {
		case f.onlyRead:
		case f.list || f.kind == kindMap:
			if at > 0 {
				begin := first[f.num] - 1
				dst, err = f.appendAll(dst, body[begin:], int(at-begin))
			}
		case at > 0 && !f.zero(body[at:]):
			dst, err = f.appendMember(dst, body[at:])
		case f.always:
			dst = append(append(comma(dst), f.key...), `""`...)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// comma appends one unless an object or a list has just begun. No value ends with such a byte, nor
// does a payload.
func comma(dst []byte) []byte {
	if c := dst[len(dst)-1]; c == '{' || c == '[' {
		return dst
	}
	return append(dst, ',')
}

// appendMember appends a field of one value, raw.
func (f *field) appendMember(dst, raw []byte) ([]byte, error) {
	if f.kind != kindJSON {
		return f.appendValue(append(comma(dst), f.key...), raw)
	}
	payload, _ := protowire.ConsumeBytes(raw)
	if IsJSON(payload) {
		return append(append(comma(dst), f.key...), payload...), nil
	}
	return appendBase64(append(comma(dst), `"payloadBase64":`...), payload), nil
}

// zero reports whether a value is that of a field that is left out.
func (f *field) zero(raw []byte) bool {
	switch f.wire {
	case protowire.VarintType:
		v, _ := protowire.ConsumeVarint(raw)
		return v == 0 || uint32(v) == 0 && (f.kind == kindUint32 || f.kind == kindEnum)
	case protowire.Fixed64Type:
		v, _ := protowire.ConsumeFixed64(raw)
		return v == 0
	case protowire.BytesType:
		v, _ := protowire.ConsumeBytes(raw)
		return len(v) == 0
	}
	return false
}

// appendAll appends a list or a map. raw begins with its first field; the value of its last one is
// at last.
func (f *field) appendAll(dst, raw []byte, last int) ([]byte, error) {
	mark, end := len(dst), byte(']')
	dst = append(comma(dst), f.key...)
	if f.kind == kindMap {
		dst, end = append(dst, '{'), '}'
	} else {
		dst = append(dst, '[')
	}
	var err error
	for at := 0; at < last; {
		num, typ, tag := protowire.ConsumeTag(raw[at:])
		size := protowire.ConsumeFieldValue(num, typ, raw[at+tag:])
		value := raw[at+tag : at+tag+size]
		at += tag + size
		switch {
		case num != f.num:
			continue
		case typ == protowire.BytesType && f.packable():
			dst, err = f.appendPacked(dst, value)
		case typ == f.wire:
			dst, err = f.appendValue(comma(dst), value)
		}
		if err != nil {
			return dst, err
		}
	}
	if c := dst[len(dst)-1]; c == '[' { // packed, and nothing in it
		return dst[:mark], nil
	}
	return append(dst, end), nil
}

func (f *field) appendPacked(dst, value []byte) ([]byte, error) {
	packed, _ := protowire.ConsumeBytes(value)
	for len(packed) > 0 {
		n := protowire.ConsumeFieldValue(f.num, f.wire, packed)
		if n < 0 {
			return dst, ErrMalformed
		}
		var err error
		if dst, err = f.appendValue(comma(dst), packed[:n]); err != nil {
			return dst, err
		}
		packed = packed[n:]
	}
	return dst, nil
}

// appendValue appends a value as it is on the wire, whose form has been checked.
func (f *field) appendValue(dst, raw []byte) ([]byte, error) {
	switch f.kind {
	case kindString:
		v, _ := protowire.ConsumeBytes(raw)
		return appendString(dst, v)
	case kindBytes:
		v, _ := protowire.ConsumeBytes(raw)
		return appendBase64(dst, v), nil
	case kindBool:
		v, _ := protowire.ConsumeVarint(raw)
		return strconv.AppendBool(dst, v != 0), nil
	case kindUint32:
		v, _ := protowire.ConsumeVarint(raw)
		return strconv.AppendUint(dst, uint64(uint32(v)), 10), nil
	case kindUint64:
		v, _ := protowire.ConsumeVarint(raw)
		return appendUint64(dst, v), nil
	case kindFixed64:
		v, _ := protowire.ConsumeFixed64(raw)
		return appendUint64(dst, v), nil
	case kindDouble:
		v, _ := protowire.ConsumeFixed64(raw)
		return appendFloat(dst, math.Float64frombits(v), 64), nil
	case kindFloat:
		v, _ := protowire.ConsumeFixed32(raw)
		return appendFloat(dst, float64(math.Float32frombits(v)), 32), nil
	case kindEnum:
		v, _ := protowire.ConsumeVarint(raw)
		if n := int32(v); n < 0 || int(n) >= len(f.names) {
			return strconv.AppendInt(dst, int64(n), 10), nil
		}
		return append(append(append(dst, '"'), f.names[int32(v)]...), '"'), nil
	case kindObject:
		v, _ := protowire.ConsumeBytes(raw)
		dst, err := f.object.append(append(dst, '{'), v, f.object.fields)
		return append(dst, '}'), err
	default: // kindMap
		v, _ := protowire.ConsumeBytes(raw)
		return f.object.appendEntry(dst, v)
	}
}

// appendEntry appends an entry of a map, whose key and value may be missing.
func (o *object) appendEntry(dst, entry []byte) ([]byte, error) {
	var err error
	for i := range o.fields {
		f, raw := &o.fields[i], []byte(nil)
		for rest := entry; len(rest) > 0; {
			num, typ, tag := protowire.ConsumeTag(rest)
			if tag < 0 {
				return dst, ErrMalformed
			}
			size := protowire.ConsumeFieldValue(num, typ, rest[tag:])
			if size < 0 {
				return dst, ErrMalformed
			}
			if num == f.num && typ == f.wire {
				raw = rest[tag:]
			}
			rest = rest[tag+size:]
		}
		if i > 0 {
			dst = append(dst, ':')
		}
		switch {
		case raw != nil:
			dst, err = f.appendValue(dst, raw)
		case f.kind == kindString:
			dst = append(dst, `""`...)
		default:
			dst = append(dst, '0')
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func appendBase64(dst, v []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v), '"')
}

// appendUint64 appends a number that JavaScript could not hold.
func appendUint64(dst []byte, v uint64) []byte {
	return append(strconv.AppendUint(append(dst, '"'), v, 10), '"')
}

const hex = "0123456789abcdef"

func appendString(dst, s []byte) ([]byte, error) {
	dst = append(dst, '"')
	for {
		n, seen := plain(s, 0)
		if seen != 0 && !utf8.Valid(s[:n]) {
			return dst, ErrNotUTF8
		}
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"'), nil
		}
		switch c := s[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[n+1:]
	}
}
