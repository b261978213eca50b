package ranking

import (
	"encoding/hex"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/fields"
)

// Fields of Message and of MessageFeatures that candidates have.
const (
	payloadField     protowire.Number = 3
	publishedAtField protowire.Number = 4
	idField          protowire.Number = 5
	headersField     protowire.Number = 6
	featuresField    protowire.Number = 1
	vectorField      protowire.Number = 2
)

// maxNames that candidates share.
const maxNames = 4096

// converter makes candidates of messages. What a scorer would refuse, and a whole job with it, is
// left out: values that are not finite, texts that are not UTF-8, vectors of too many dimensions,
// times that no Timestamp has.
type converter struct {
	needs score.Needs
	names map[string]string // of features and headers, which messages of a topic share
	bytes int               // about what the candidates are encoded, packed

	features []expr.Pair[float64] // of a message
	headers  []expr.Pair[string]
}

// What candidates are encoded besides what they carry, at most: all together, and each.
const (
	together     = 64
	perCandidate = 32
)

func newConverter(needs score.Needs) converter {
	return converter{needs: needs, names: map[string]string{}, bytes: together}
}

// fill makes out, which is empty, the candidate of a message. The candidate refers to the message's
// payload.
func (c *converter) fill(out *score.Candidate, m *exchange.Message) {
	n := &c.needs
	c.bytes += perCandidate
	out.Priority = min(uint32(m.Priority), score.MaxPriority)
	if n.Topic && utf8.ValidString(m.Topic) {
		out.Topic = m.Topic
		c.bytes += len(m.Topic)
	}
	if n.ID || n.Headers || n.Payload || n.PublishedAt {
		c.headers = c.headers[:0]
		fields.Each(m.Body(), func(num protowire.Number, typ protowire.Type, value []byte) { c.fromBody(out, num, typ, value) })
		out.Headers.Pairs = slices.Clone(expr.InOrder(c.headers))
	}
	if n.Features || n.Vector {
		c.features = c.features[:0]
		fields.Each(m.Mesh, func(num protowire.Number, typ protowire.Type, value []byte) { c.fromMesh(out, num, typ, value) })
		// of two the last one counts, and neither where that is not finite
		finite := slices.DeleteFunc(expr.InOrder(c.features), func(p expr.Pair[float64]) bool { return p.Value-p.Value != 0 })
		out.Features.Pairs = slices.Clone(finite)
		c.bytes += 8 * len(finite)
		if len(out.Vector) > score.MaxDimensions || !allFinite(out.Vector) {
			out.Vector = nil
		}
		c.bytes += 4 * len(out.Vector)
	}
}

func (c *converter) fromBody(out *score.Candidate, num protowire.Number, typ protowire.Type, value []byte) {
	switch {
	case num == publishedAtField && typ == protowire.Fixed64Type && c.needs.PublishedAt:
		us, _ := protowire.ConsumeFixed64(value)
		out.PublishedAt = timestamp(us)
	case typ != protowire.BytesType:
	case num == payloadField && c.needs.Payload:
		c.bytes += len(value) - len(out.Payload)
		out.Payload = value
	case num == idField && c.needs.ID:
		out.ID = uuid(value)
		c.bytes += len(out.ID)
	case num == headersField && c.needs.Headers:
		key, text := fields.Entry(value, protowire.BytesType)
		if name, ok := c.name(key); ok && utf8.Valid(text) {
			c.headers = append(c.headers, expr.Pair[string]{Name: name, Value: string(text)})
			c.bytes += len(text) + 4
		}
	}
}

func (c *converter) fromMesh(out *score.Candidate, num protowire.Number, typ protowire.Type, value []byte) {
	switch {
	case num == featuresField && typ == protowire.BytesType && c.needs.Features:
		key, v := fields.Entry(value, protowire.Fixed64Type)
		bits, _ := protowire.ConsumeFixed64(v)
		if name, ok := c.name(key); ok && c.needs.Feature(name) {
			c.features = append(c.features, expr.Pair[float64]{Name: name, Value: math.Float64frombits(bits)})
		}
	case num == vectorField && c.needs.Vector && typ == protowire.BytesType:
		if out.Vector == nil {
			out.Vector = make([]float32, 0, len(value)/4)
		}
		for ; len(value) >= 4; value = value[4:] {
			bits, _ := protowire.ConsumeFixed32(value)
			out.Vector = append(out.Vector, math.Float32frombits(bits))
		}
	case num == vectorField && c.needs.Vector && typ == protowire.Fixed32Type: // not packed
		bits, _ := protowire.ConsumeFixed32(value)
		out.Vector = append(out.Vector, math.Float32frombits(bits))
	}
}

// name is a text that others have too.
func (c *converter) name(b []byte) (string, bool) {
	if s, known := c.names[string(b)]; known {
		return s, true
	}
	if !utf8.Valid(b) {
		return "", false
	}
	s := string(b)
	c.bytes += len(s) + 2 // names are encoded once, but for sets that differ
	if len(c.names) < maxNames {
		c.names[s] = s
	}
	return s, true
}

// allFinite reports whether a vector can be scored.
func allFinite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 {
			return false
		}
	}
	return true
}

// latest is the last second of the year 9999, beyond which there is no Timestamp.
const latest = 253402300799

// timestamp of a Unix time in microseconds; 0 is none.
func timestamp(us uint64) score.Time {
	seconds := us / uint64(time.Second/time.Microsecond)
	if us == 0 || seconds > latest {
		return score.Time{}
	}
	return score.Time{Seconds: int64(seconds), Nanos: int32(us%1e6) * 1000, Set: true}
}

// uuid is the text of 16 bytes; "" of others.
func uuid(b []byte) string {
	if len(b) != 16 {
		return ""
	}
	var text [36]byte
	for at, part := 0, 0; part < 5; part++ {
		size := [...]int{4, 2, 2, 2, 6}[part]
		if part > 0 {
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], b[:size])
		b, at = b[size:], at+2*size
	}
	return string(text[:])
}

// dimensions is the length that most vectors of candidates have, of those that equally many have
// the shortest; 0: none has any.
func dimensions(candidates []score.Candidate) int {
	counts, best := map[int]int{}, 0
	for i := range candidates {
		if n := len(candidates[i].Vector); n > 0 {
			counts[n]++
		}
	}
	for n, count := range counts {
		if best == 0 || count > counts[best] || count == counts[best] && n < best {
			best = n
		}
	}
	return best
}
