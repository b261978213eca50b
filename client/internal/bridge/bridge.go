// Package bridge makes a connection of a gRPC stream: what is a frame to an edge is a message of
// SubscribeService to a router.
package bridge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

var errBadEvent = errors.New("pushmesh: the router sent an event that can't be decoded")

// streamEnd is how long a stream may take to end once nothing more is sent.
const streamEnd = 2 * time.Second

// bridge hands frames between a pipe, whose other end is a subscriber's connection, and a stream.
// Its two goroutines end with the pipe and the stream.
type bridge struct {
	rpc    grpc.BidiStreamingClient[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]
	pipe   net.Conn
	cancel context.CancelFunc
	reason func(error) *wirev1.Error
	mu     sync.Mutex // writes of whole frames
}

// bridged is the subscriber's end.
type bridged struct {
	net.Conn
	far net.Conn
}

// CloseWrite says that nothing more is written: reads go on until the stream's end. What was
// written has been read.
func (c bridged) CloseWrite() error { return c.far.SetReadDeadline(time.Now()) }

// Dial opens a stream to the router at addr. reason makes an Error frame of what ends the stream.
func Dial(ctx context.Context, addr string, opts []grpc.DialOption, reason func(error) *wirev1.Error) (net.Conn, error) {
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return nil, err
	}
	streamCtx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	rpc, err := pushmeshv1.NewSubscribeServiceClient(conn).Subscribe(streamCtx, grpc.ForceCodecV2(codec.Codec{}))
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		_ = conn.Close() // the call's own error says more
		return nil, err
	}
	near, far := net.Pipe()
	b := &bridge{rpc: rpc, pipe: far, cancel: cancel, reason: reason}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.down()
	}()
	go func() {
		b.up()
		end := time.AfterFunc(streamEnd, cancel)
		<-done
		end.Stop()
		cancel()
		_ = conn.Close() // the stream has ended, and said why
	}()
	return bridged{near, far}, nil
}

// up sends what the subscriber writes, until it closes or the stream breaks.
func (b *bridge) up() {
	br := bufio.NewReader(b.pipe)
	for {
		t, body, err := wire.Read(br, nil, wire.MaxBody)
		if err != nil {
			_ = b.rpc.CloseSend() // never fails
			return
		}
		if !travels(t) {
			go b.refuse(t, body) // the subscriber may read only once this goroutine reads on
			continue
		}
		req := protowire.AppendTag(make([]byte, 0, len(body)+8), protowire.Number(t), protowire.BytesType)
		if b.rpc.SendMsg(codec.Encoded(protowire.AppendBytes(req, body))) != nil {
			// down tells why; what the subscriber writes until then is lost with the stream
			_, _ = io.Copy(io.Discard, br)
			return
		}
	}
}

// travels reports whether SubscribeRequest has a field for a frame, which then has the frame's
// number.
func travels(t wirev1.FrameType) bool {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_HELLO, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE,
		wirev1.FrameType_FRAME_TYPE_ACK, wirev1.FrameType_FRAME_TYPE_NACK, wirev1.FrameType_FRAME_TYPE_PING:
		return true
	}
	return false
}

// refuse answers a Publish or a Claim, whose id is its field 1.
func (b *bridge) refuse(t wirev1.FrameType, body []byte) {
	num, typ, n := protowire.ConsumeTag(body)
	if n < 0 || num != 1 || typ != protowire.VarintType {
		return // no answer is wanted
	}
	id, _ := protowire.ConsumeVarint(body[n:])
	why := "a subscriber through a router does not publish: use a Producer"
	if t == wirev1.FrameType_FRAME_TYPE_CLAIM {
		why = "a subscriber through a router does not claim: call ClaimService"
	}
	b.tell(&wirev1.Error{Code: wirev1.Code_CODE_UNSUPPORTED, Message: why, Ref: uint32(id)})
}

func (b *bridge) tell(e *wirev1.Error) {
	if frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, e); err == nil {
		_ = b.write(frame) // it fails where nobody listens any more
	}
}

func (b *bridge) write(frames []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.pipe.Write(frames)
	return err
}

// down hands the subscriber what comes, and at last why the stream ended.
func (b *bridge) down() {
	defer func() { _ = b.pipe.Close() }()
	var resp codec.Encoded
	var frames []byte
	unheard := false
	for {
		err := b.rpc.RecvMsg(&resp)
		if err == nil && !unheard {
			if frames, err = appendFrames(frames[:0], resp); err == nil {
				unheard = b.write(frames) != nil
			}
		}
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF) && !unheard:
			b.tell(b.reason(err))
		}
		b.cancel()
		return
	}
}

// appendFrames makes frames of an encoded SubscribeResponse: an event's one field has its frame's
// number, and the frame's body.
func appendFrames(dst []byte, resp []byte) ([]byte, error) {
	for len(resp) > 0 {
		_, event, rest, ok := field(resp)
		if !ok {
			return dst, errBadEvent
		}
		resp = rest
		for len(event) > 0 {
			num, body, rest, ok := field(event)
			if !ok || num > 0xff || len(body) > wire.MaxBody {
				return dst, errBadEvent
			}
			event = rest
			var head [wire.HeaderSize]byte
			wire.PutHeader(head[:], len(body), wirev1.FrameType(num))
			dst = append(append(dst, head[:]...), body...)
		}
	}
	return dst, nil
}

// field takes a field of bytes off b.
func field(b []byte) (num protowire.Number, body, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType {
		return 0, nil, nil, false
	}
	body, m := protowire.ConsumeBytes(b[n:])
	if m < 0 {
		return 0, nil, nil, false
	}
	return num, body, b[n+m:], true
}
