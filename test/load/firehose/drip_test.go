package firehose

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// desk takes messages as a router does.
type desk struct {
	pushmeshv1.UnimplementedPublishServiceServer
	code   wirev1.Code
	leaves bool // ends the call after a message
	got    chan *pushmeshv1.PublishStreamRequest_Item
}

func (d *desk) PublishStream(s grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]) error {
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		it := req.GetBatch()[0]
		d.got <- it
		res := &pushmeshv1.PublishStreamResponse_Result{Ref: it.GetRef(), Code: d.code, Error: strings.Repeat("why", 50)}
		if err := s.Send(&pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{res}}); err != nil || d.leaves {
			return err
		}
	}
}

func openDrip(t *testing.T, d *desk) *Drip {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(64<<10))
	pushmeshv1.RegisterPublishServiceServer(s, d)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	p, err := NewDrip(t.Context(), l.Addr().String(), []string{"a", "b"}, 128)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Ten times what the windows let through, in both directions, arrives and is answered.
func TestADripPublishes(t *testing.T) {
	const n = 20_000
	d := &desk{got: make(chan *pushmeshv1.PublishStreamRequest_Item, n)}
	p := openDrip(t, d)
	for i := range n {
		if err := errors.Join(p.Poll(), p.Publish(i%2, func(b []byte) { b[0] = byte(i) })); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		it := <-d.got
		if m := it.GetMessage(); it.GetRef() != uint64(i+1) || m.GetTopic() != []string{"a", "b"}[i%2] || len(m.GetPayload()) != 128 || m.GetPayload()[0] != byte(i) {
			t.Fatalf("%d: %v", i, it)
		}
	}
}

func TestADripSaysWhatWentWrong(t *testing.T) {
	for want, d := range map[string]*desk{
		"refused: code 2": {code: 2},
		"ended the call":  {leaves: true},
	} {
		d.got = make(chan *pushmeshv1.PublishStreamRequest_Item, 2)
		p := openDrip(t, d)
		err := errors.Join(p.Publish(0, func([]byte) {}), p.Wait(t.Context()))
		for err == nil { // the end of a call comes after its answers
			err = errors.Join(p.await(unix.POLLIN, time.Now().Add(patience)), p.Poll())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewDrip(ctx, "127.0.0.1:1", nil, 0); err == nil {
		t.Error("connected to nobody")
	}
}
