// Package codec is gRPC's protobuf codec with the messages on the path of a durable publish encoded
// by code that protoc-gen-go-vtproto generates, in half the time and less, and decoded by hand,
// which leaves the garbage collector less to do (docs/adr/0058-generated-codecs.md). Everything
// else, and whatever is not as expected, is done by google.golang.org/protobuf, and both always
// agree, which a fuzz target holds them to.
//
// In what is decoded here, fields of bytes lie in one piece of memory that belongs to the message;
// strings are their own.
package codec

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Codec implements encoding.CodecV2; use it with grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that of the codec that it speaks like.
func (Codec) Name() string { return "proto" }

// pooled is the size from which a buffer is worth getting from the pool.
const pooled = 1 << 10

// Marshal encodes a message into a buffer of the pool.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(Encoded); ok {
		return e.marshal(), nil
	}
	size, put := encoder(v)
	if put == nil {
		m, ok := v.(proto.Message)
		if !ok {
			return nil, fmt.Errorf("codec: %T is no protobuf message", v)
		}
		size = proto.Size(m)
		put = func(dst []byte) ([]byte, error) {
			return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(dst, m)
		}
	}
	if size < pooled {
		b, err := put(make([]byte, 0, size))
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	b, err := put((*buf)[:0])
	if err != nil {
		pool.Put(buf)
		return nil, err
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// generated is what protoc-gen-go-vtproto makes of the messages that proto/buf.gen.yaml names.
type generated interface {
	SizeVT() int
	MarshalToSizedBufferVT(dst []byte) (int, error)
}

// encoder of a message: its exact size, and what appends it. nil: google.golang.org/protobuf does
// it.
func encoder(v any) (int, func([]byte) ([]byte, error)) {
	m, ok := v.(generated)
	if !ok || !textsValid(v) {
		return 0, nil
	}
	size := m.SizeVT()
	return size, func(dst []byte) ([]byte, error) {
		n := len(dst)
		dst = dst[:n+size]
		_, err := m.MarshalToSizedBufferVT(dst[n:])
		return dst, err
	}
}

// textsValid reports whether every string of a message is UTF-8, which the generated encoders don't
// check; false for a message that is not known here.
func textsValid(v any) bool {
	switch m := v.(type) {
	case *meshv1.AppendRequest:
		for _, it := range m.GetItems() {
			if !utf8.ValidString(it.GetTopic()) || !utf8.ValidString(it.GetDedupeKey()) || !utf8.ValidString(it.GetTraceparent()) {
				return false
			}
		}
		return true
	case *meshv1.AppendResponse:
		for _, r := range m.GetResults() {
			if !utf8.ValidString(r.GetError()) {
				return false
			}
		}
		return true
	case *meshv1.ReadLogResponse:
		return true
	case *pushmeshv1.PublishStreamResponse:
		for _, r := range m.GetResults() {
			if !utf8.ValidString(r.GetError()) || !resultsValid(r.GetResponse().GetResults()) {
				return false
			}
		}
		return true
	}
	return false
}

func resultsValid(results []*pushmeshv1.TopicResult) bool {
	for _, r := range results {
		if !utf8.ValidString(r.GetError()) {
			return false
		}
	}
	return true
}

// Unmarshal decodes a message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Encoded:
		m.unmarshal(data)
		return nil
	case *Frame:
		m.unmarshal(data)
		return nil
	case *meshv1.AppendRequest:
		return decode(data, m, takeAppendRequest)
	case *meshv1.AppendResponse:
		return decode(data, m, takeAppendResponse)
	case *meshv1.ReadLogResponse:
		return decode(data, m, takeReadLogResponse)
	case *pushmeshv1.PublishStreamRequest:
		return decode(data, m, takePublishRequest)
	case proto.Message:
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		return proto.Unmarshal(buf.ReadOnlyData(), m)
	}
	return fmt.Errorf("codec: %T is no protobuf message", v)
}

// decode copies the data once, for the message to keep, and has take decode it; where that is not
// as expected, google.golang.org/protobuf decides.
func decode[M proto.Message](data mem.BufferSlice, m M, take func([]byte, M) bool) error {
	b := data.Materialize()
	proto.Reset(m)
	if take(b, m) {
		return nil
	}
	return proto.Unmarshal(b, m)
}

// merge has google.golang.org/protobuf decode what is left of a message from a field on that is not
// expected here, so that one that has such a field costs no more than itself. What was decoded
// before it stays: an encoded message is the same as its beginning, merged with its rest.
func merge(rest []byte, m proto.Message) bool {
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(rest, m) == nil
}
