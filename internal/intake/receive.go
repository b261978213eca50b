package intake

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// MaxRequest is the size of the largest request, in bytes.
	MaxRequest = 64 << 20
	// light is how much more than its size a request is expected to take, in bytes.
	light = 64 << 10
	// lightest is up to which size a stream's request is charged by its size alone, in bytes.
	lightest = 128
	// frameTimeout is how long a caller has for a request that it has begun, and frameRate how many
	// bytes more it has to send in each further second. Requests up to frameBytes have no such
	// bound: what they hold is little beside what a call without one does.
	frameTimeout = 30 * time.Second
	frameRate    = 1 << 20
	frameBytes   = 16 << 10
	// step is by how much what comes out of a compressed request grows, in bytes.
	step = 64 << 10
	// prefixBytes of a message in gRPC: a flag, and four bytes of length.
	prefixBytes = 5
	compressed  = 1
)

// source is what gRPC's transport offers of a call (its *transport.ServerStream), and what
// ServerStream.RecvMsg is made of. It tells the length of a message before it asks the client for
// it: nothing else of gRPC does.
type source interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// only receives the request of a call that has one. Where there is no room it is refused, before it
// is received, or before it is decoded.
func (c *Call) only(ctx context.Context, v any, recv func(any) error) error {
	src, ok := grpc.ServerTransportStreamFromContext(ctx).(source)
	if !ok {
		return recv(v)
	}
	n, flag, err := header(src)
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Internal, "the call has no request")
	}
	if err != nil {
		return err
	}
	if err := c.resize(c.budget.expected(n)); err != nil {
		return err
	}
	data, err := c.body(ctx, src, n, flag, c.resize)
	if err != nil {
		return err
	}
	defer func() { data.Free() }()
	if _, _, err := header(src); err == nil {
		return status.Error(codes.Internal, "the call has more than one request")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	if !c.budget.turns.enter(ctx, &c.caller.line) {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return c.budget.refuse("too many calls wait to be read")
	}
	defer c.budget.turns.leave()
	data = joined(data)
	size := int64(data.Len())
	if err := c.resize(size + c.plan.weigh(data)); err != nil {
		return err
	}
	return codec.Codec{}.Unmarshal(data, v)
}

// next receives a request of a stream, which waits for room with its caller, and once more where it
// turns out to be heavier than was expected. A stream is never ended for lack of room.
func (c *Call) next(ctx context.Context, v any, recv func(any) error) error {
	c.Done()
	src, ok := grpc.ServerTransportStreamFromContext(ctx).(source)
	if !ok {
		return recv(v)
	}
	n, flag, err := header(src)
	if err != nil {
		return err
	}
	await := func(n int64) error { return named(c.await(ctx, n)) }
	if err := await(c.budget.expected(n)); err != nil {
		return err
	}
	data, err := c.body(ctx, src, n, flag, await)
	if err != nil {
		return err
	}
	defer func() { data.Free() }()
	if size := int64(data.Len()); size > lightest {
		data = joined(data)
		weight := size + c.plan.weigh(data) + c.plan.items(data)*AnswerBytes
		if weight > c.weight() {
			c.shrink(size)
			if err := await(weight); err != nil {
				return err
			}
		}
	}
	return codec.Codec{}.Unmarshal(data, v)
}

// expected is what a request of n bytes is charged before it is received: about what usual ones
// take, and large ones at least.
func (b *Budget) expected(n int64) int64 { return min(4*n, max(2*n+light, b.all/large)) }

// named gives a context's end its status, as gRPC does.
func named(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}

// header waits for the next message, and tells its size in bytes. io.EOF: there is none.
func header(src source) (n int64, flag byte, err error) {
	var prefix [prefixBytes]byte
	if err := src.ReadMessageHeader(prefix[:]); err != nil {
		return 0, 0, broken(err)
	}
	n = int64(binary.BigEndian.Uint32(prefix[1:]))
	if n > MaxRequest {
		return 0, 0, oversized(n)
	}
	return n, prefix[0], nil
}

func oversized(n int64) error {
	return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, fmt.Sprintf("the request has %d bytes, %d at most", n, MaxRequest))
}

func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, "the request ends too early")
	}
	return err
}

// body receives a message of n bytes. What is compressed is charged by grow, where it takes more
// than the request is charged.
func (c *Call) body(ctx context.Context, src source, n int64, flag byte, grow func(int64) error) (mem.BufferSlice, error) {
	data, err := timely(ctx, src, n)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, broken(err)
	}
	switch flag {
	case 0:
		return data, nil
	case compressed:
		defer data.Free()
		return c.inflated(data, src.RecvCompress(), grow)
	}
	data.Free()
	return nil, status.Errorf(codes.Internal, "a message has flag %d, which is none", flag)
}

// timely reads n bytes, for which the caller has not for ever. Where they don't come in time the
// call has to end: that ends the goroutine that still reads.
func timely(ctx context.Context, src source, n int64) (mem.BufferSlice, error) {
	if n <= frameBytes {
		return src.Read(int(n))
	}
	type result struct {
		data mem.BufferSlice
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := src.Read(int(n))
		read <- result{data, err}
	}()
	within := frameTimeout + time.Duration(n)*time.Second/frameRate
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-read:
		return r.data, r.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, comeBack, fmt.Sprintf("the request has %d bytes, which have not come within %v", n, within.Round(time.Second)))
	}
}

// inflated is what a compressed message holds. It is charged while it grows.
func (c *Call) inflated(data mem.BufferSlice, name string, grow func(int64) error) (mem.BufferSlice, error) {
	by := encoding.GetCompressor(name)
	if by == nil {
		return nil, status.Errorf(codes.Unimplemented, "no compressor is called %q", name)
	}
	from := data.Reader()
	defer func() { _ = from.Close() }()
	r, err := by.Decompress(from)
	if err != nil {
		return nil, undone(err)
	}
	var out mem.BufferSlice
	size := int64(data.Len())
	piece := min(step, 3*size+1)
	for total := int64(0); ; piece = step {
		if to := size + total + piece; to > c.weight()+1 {
			if err := grow(to); err != nil {
				return nil, err
			}
		}
		b := make([]byte, piece)
		n, err := fill(r, b)
		if total += int64(n); total > MaxRequest {
			return nil, oversized(total)
		}
		out = append(out, mem.SliceBuffer(b[:n]))
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, undone(err)
		}
	}
}

func undone(err error) error {
	return status.Errorf(codes.Internal, "the request can't be decompressed: %v", err)
}

// fill reads until b is full, or r ends, which is io.EOF.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// joined is data in one piece.
func joined(data mem.BufferSlice) mem.BufferSlice {
	if len(data) < 2 {
		return data
	}
	defer data.Free()
	return mem.BufferSlice{mem.SliceBuffer(data.Materialize())}
}
