package codec

import "github.com/pushmesh/pushmesh/proto/gen/meshv1"

// takeReadLogResponse makes two pieces of memory whatever the number of records: the records, and
// the pointers to them. Bodies lie in b, which the message keeps. It is false for what it does not
// expect.
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
		from := c.b
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
			return merge(from, m)
		}
	}
}
