package codec

import "github.com/pushmesh/pushmesh/proto/gen/meshv1"

func takeReadLogResponse(b []byte, m *meshv1.ReadLogResponse) bool {
	n, ok := countRecords(b)
	if !ok {
		return false
	}
	records := make([]meshv1.LogRecord, n)
	if n > 0 {
		m.Records = make([]*meshv1.LogRecord, 0, n)
	}
	c := cursor{b: b}
	for {
		number, _, more := c.next()
		switch {
		case !more:
			return !c.bad
		case number == 1:
			m.Epoch = c.fixed64()
		case number == 2:
			m.Head = c.varint()
		case number == 3:
			m.Oldest = c.varint()
		default:
			r := &records[len(m.Records)]
			m.Records = append(m.Records, r)
			if !takeLogRecord(c.bytes(), r) {
				return false
			}
		}
	}
}

// countRecords also sees to it that every field is of a kind that is expected.
func countRecords(b []byte) (n int, ok bool) {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return n, !c.bad
		case kind == kindFixed64 && number == 1:
			c.fixed64()
		case kind == kindVarint && (number == 2 || number == 3):
			c.varint()
		case kind == kindBytes && number == 4:
			c.bytes()
			n++
		default:
			return 0, false
		}
	}
}

func takeLogRecord(b []byte, m *meshv1.LogRecord) bool {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return !c.bad
		case kind == kindVarint && number == 1:
			m.Seq = c.varint()
		case kind == kindFixed64 && number == 2:
			m.ExpiresAt = c.fixed64()
		case kind == kindBytes && number == 3:
			m.Body = c.own()
		default:
			return false
		}
	}
}

func sizeReadLogResponse(m *meshv1.ReadLogResponse) (size int, ok bool) {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return 0, false
	}
	size = sizeFixed(m.GetEpoch()) + sizeNumber(m.GetHead()) + sizeNumber(m.GetOldest())
	for _, r := range m.GetRecords() {
		if r == nil || len(r.ProtoReflect().GetUnknown()) > 0 {
			return 0, false
		}
		n := sizeLogRecord(r)
		size += 1 + sizeVarint(uint64(n)) + n
	}
	return size, true
}

func sizeLogRecord(m *meshv1.LogRecord) int {
	return sizeNumber(m.GetSeq()) + sizeFixed(m.GetExpiresAt()) + sizeBytes(len(m.GetBody()))
}

func putReadLogResponse(dst []byte, m *meshv1.ReadLogResponse) []byte {
	dst = putFixed(dst, 1, m.GetEpoch())
	dst = putNumber(dst, 2, m.GetHead())
	dst = putNumber(dst, 3, m.GetOldest())
	for _, r := range m.GetRecords() {
		dst = putHead(dst, 4, sizeLogRecord(r))
		dst = putNumber(dst, 1, r.GetSeq())
		dst = putFixed(dst, 2, r.GetExpiresAt())
		dst = putBytes(dst, 3, r.GetBody())
	}
	return dst
}
