package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// rawStream is an HTTP/2 connection by hand with one call, whose answers are never given room.
type rawStream struct {
	conn   net.Conn
	fr     *http2.Framer
	window chan struct{}
}

func openRaw(t *testing.T, to, by, path, name string) *rawStream {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(by)}}).DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	r := &rawStream{conn, http2.NewFramer(conn, conn), make(chan struct{}, 100)}
	_ = r.fr.WriteSettings()
	_ = r.fr.WriteSettingsAck()
	go func() {
		for {
			f, err := r.fr.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := f.(*http2.WindowUpdateFrame); ok {
				select {
				case r.window <- struct{}{}:
				default:
				}
			}
		}
	}()
	<-r.window // the connection's
	var h bytes.Buffer
	enc := hpack.NewEncoder(&h)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", name}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	if err := r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rawStream) data(t *testing.T, b []byte) {
	t.Helper()
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		if err := r.fr.WriteData(1, false, b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
}

// One address whose streams read no answers does not have others refused.
func TestUnreadAnswersOfOneAddressLeaveRoom(t *testing.T) {
	const streams, budget = 60, 256 << 20
	m := startMesh(t, func(s *Settings) { s.RequestBytes = budget })
	many := &pushmeshv1.PublishStreamRequest{}
	for range 32_000 {
		many.Batch = append(many.Batch, &pushmeshv1.PublishStreamRequest_Item{})
	}
	body, err := proto.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	msg := append(make([]byte, 5), body...)
	binary.BigEndian.PutUint32(msg[1:], uint32(len(body)))
	var all []*rawStream
	for i := range streams {
		s := openRaw(t, m.router.Addr(), "127.0.0.6", "/pushmesh.v1.PublishService/PublishStream", fmt.Sprint("Bearer evil", i))
		s.data(t, msg[:len(msg)-1])
		all = append(all, s)
	}
	honest := pushmeshv1.NewPublishServiceClient(m.from(t, "127.0.0.2"))
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := honest.Publish(named(ctx, "honest"), &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 100)})
		return err
	}
	eventually(t, "the streams are let in", func() error { return atLeast(m, t, "pushmesh_router_request_bytes", streams*(32<<10)) })
	before := heap()
	for _, s := range all {
		s.data(t, msg[len(msg)-1:])
	}
	eventually(t, "some wait", func() error { return atLeast(m, t, "pushmesh_router_request_waits_total", streams/4) })
	t.Logf("the heap grows by %d MiB", (heap()-before)>>20)
	if err := atLeast(m, t, "pushmesh_router_request_bytes", budget*3/4); err == nil {
		t.Error("one address has three quarters of the budget")
	}
	for range 3 {
		if err := try(); err != nil {
			t.Errorf("another address: %v", err)
		}
	}
	s, err := honest.PublishStream(named(t.Context(), "honest"))
	if err == nil {
		_, err = s.Header()
	}
	if err != nil {
		t.Errorf("a stream of another address: %v", err)
	}
}

// atLeast is an error while a metric is below n.
func atLeast(m *mesh, t *testing.T, name string, n float64) error {
	t.Helper()
	_, got := m.metric(t, name)
	if v, err := strconv.ParseFloat(got, 64); err != nil || v < n {
		return fmt.Errorf("%s is %q, want %v at least", name, got, n)
	}
	return nil
}
