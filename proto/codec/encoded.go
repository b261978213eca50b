package codec

import (
	"strings"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Encoded is a message in its encoded form, for programs that put messages together from parts that
// are encoded already, or take them apart so. Codec sends a copy of it as it is, and receives into
// an *Encoded.
type Encoded []byte

func (e Encoded) marshal() mem.BufferSlice {
	if len(e) < pooled {
		return mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), e...))}
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(len(e))
	copy(*buf, e)
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}
}

// unmarshal replaces e; its memory is its own.
func (e *Encoded) unmarshal(data mem.BufferSlice) { *e = data.Materialize() }

// AppendRefusals appends results of a PublishStreamResponse, one for each ref, that say all the
// same.
func AppendRefusals(dst Encoded, refs []uint64, code wirev1.Code, text string, retry time.Duration) Encoded {
	var room [128]byte
	same, err := proto.MarshalOptions{}.MarshalAppend(room[:0], &pushmeshv1.PublishStreamResponse_Result{
		Code: code, Error: strings.ToValidUTF8(text, "?"), RetryAfter: durationpb.New(retry),
	})
	if err != nil {
		panic(err) // text was what could not be encoded
	}
	for _, ref := range refs {
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(1+protowire.SizeVarint(ref)+len(same)))
		dst = protowire.AppendTag(dst, 1, protowire.VarintType)
		dst = append(protowire.AppendVarint(dst, ref), same...)
	}
	return dst
}
