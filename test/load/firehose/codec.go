package firehose

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// raw is a gRPC codec for messages that are encoded already.
type raw struct{}

// Name is that of the codec whose bytes these are.
func (raw) Name() string { return "proto" }

// Marshal takes a []byte as it is, without a copy: it must stay as it is until the peer has
// answered what is in it.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("firehose: can't send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal copies into a *[]byte, which is reused.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("firehose: can't receive a %T", v)
	}
	if n := data.Len(); cap(*b) < n {
		*b = make([]byte, n)
	} else {
		*b = (*b)[:n]
	}
	data.CopyTo(*b)
	return nil
}
