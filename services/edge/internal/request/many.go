package request

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxHeaders of a message, as at the router.
const MaxHeaders = 64

var (
	tooManyPositions = code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "there are more positions than topics that a filter may match")
	tooManyHeaders   = invalid("a message must have at most 64 headers")
)

// Many checks that an encoded Subscribe has no more positions, and a Publish no more headers, than
// there may be, before any of them is decoded: a frame has room for hundreds of thousands. id is
// the request's.
func (r *Rules) Many(t wirev1.FrameType, body []byte) (id uint32, why *code.Error) {
	many, most, why := protowire.Number(11), r.WildcardTopics, tooManyPositions
	if t == wirev1.FrameType_FRAME_TYPE_PUBLISH {
		many, most, why = 4, MaxHeaders, tooManyHeaders
	}
	id, found, ok := countField(body, many)
	if !ok || found <= most {
		return id, nil
	}
	return id, why
}

// countField counts the elements of a repeated field of messages in a request, and finds the
// request's id, whichever comes first: fields stand in any order. ok is false where the request is
// malformed.
func countField(body []byte, many protowire.Number) (id uint32, found int, ok bool) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return 0, 0, false
		}
		body = body[n:]
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return 0, 0, false
		}
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(body)
			id = uint32(v)
		case num == many && typ == protowire.BytesType:
			found++
		}
		body = body[n:]
	}
	return id, found, true
}
