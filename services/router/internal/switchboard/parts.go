package switchboard

import (
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// parts decodes parts of snapshots, one after the other, without memory for each name: with ten
// million topics that would be what a new router does most.
type parts struct {
	filters []string // used again for the next part
}

// Fields of meshv1.EdgeSnapshot as they stand before their values: the number, and how the value is
// encoded.
const (
	edgeID          = 1<<3 | protowire.Number(protowire.BytesType)
	edgeIncarnation = 2<<3 | protowire.Number(protowire.Fixed64Type)
	version         = 3<<3 | protowire.Number(protowire.VarintType)
	part            = 4<<3 | protowire.Number(protowire.VarintType)
	partsInAll      = 5<<3 | protowire.Number(protowire.VarintType)
	filters         = 6<<3 | protowire.Number(protowire.BytesType)
)

// protowire reads numbers of up to 31 bits, and shifted by three those beyond 29 would pass for
// fields that they are not.
var errNumber = errors.New("a field number that protobuf doesn't have")

// decode reads a part. It is valid until the next one is read, and its names lie in data, which
// nobody changes.
func (p *parts) decode(data []byte) (*meshv1.EdgeSnapshot, error) {
	s := &meshv1.EdgeSnapshot{}
	p.filters = p.filters[:0]
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return s, protowire.ParseError(n)
		}
		if !number.IsValid() {
			return s, errNumber
		}
		data = data[n:]
		var value []byte
		var figure uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			figure, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			figure, n = protowire.ConsumeFixed64(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return s, protowire.ParseError(n)
		}
		data = data[n:]
		switch number<<3 | protowire.Number(kind) {
		case edgeID:
			s.EdgeId = string(value)
		case edgeIncarnation:
			s.EdgeIncarnation = figure
		case version:
			s.Version = figure
		case part:
			s.Part = uint32(figure)
		case partsInAll:
			s.Parts = uint32(figure)
		case filters:
			p.filters = append(p.filters, unsafe.String(unsafe.SliceData(value), len(value)))
		}
	}
	s.Filters = p.filters
	return s, nil
}
