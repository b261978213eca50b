package codec

import (
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/durationpb"

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
	same := putBytes(putNumber(room[:0], 3, uint64(code)), 4, text)
	wait := durationpb.New(retry)
	same = putHead(same, 5, sizeDuration(wait))
	same = putNumber(putNumber(same, 1, uint64(wait.GetSeconds())), 2, uint64(int64(wait.GetNanos())))
	for _, ref := range refs {
		dst = putHead(dst, 1, sizeNumber(ref)+len(same))
		dst = append(putNumber(dst, 1, ref), same...)
	}
	return dst
}
