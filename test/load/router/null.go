package router

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// nullRouter is the worker that answers OK to whatever it reads and does nothing else: what
// messages wait with it they wait for the load's own sake.
func nullRouter(ctx context.Context, _ *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	l := try.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec.Codec{}), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20))
	pushmeshv1.RegisterPublishServiceServer(server, &null{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	err = say(tally{Addr: l.Addr().String()})
	if err == nil {
		<-orders // the end
	}
	server.Stop()
	return errors.Join(err, <-served)
}

type null struct {
	pushmeshv1.UnimplementedPublishServiceServer
}

// PublishStream implements PublishService.
func (null) PublishStream(stream grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]) (err error) {
	defer try.Catch(&err)
	try.Do(stream.SendHeader(nil))
	all := func([]byte, uint32) bool { return true }
	var refs []uint64
	req := &pushmeshv1.PublishStreamRequest{}
	for {
		var f codec.Frame
		try.Do(stream.RecvMsg(&f))
		refs, err = f.Thin(req, refs[:0], all)
		f.Free()
		if err != nil {
			return err
		}
		try.Do(stream.SendMsg(codec.AppendRefusals(nil, refs, wirev1.Code_CODE_OK, "", 0)))
	}
}

// null is this stage with a router that does nothing.
func (s *stage) null(run func(*stage) error) (err error) {
	defer try.Catch(&err)
	var w *suite.Worker
	var ready tally
	try.Do(s.router.Do(func() (err error) {
		w, err = s.b.Hire("null", "null", job{}, &ready)
		return err
	}))
	defer func() { err = errors.Join(err, w.Dismiss()) }()
	at := *s
	at.addr, at.process = ready.Addr, w.Process
	return run(&at)
}
