package codec

import "google.golang.org/grpc/mem"

// Encoded is a message in its encoded form, for programs that put messages together from parts that are encoded already, or take them apart so.
// Codec sends a copy of it as it is, and receives into an *Encoded.
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
