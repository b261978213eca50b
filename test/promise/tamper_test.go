package promise

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// tamper listens before an edge and hands each Message frame of it to one function for each
// connection, made by alter: what that returns is sent in its place. Everything else passes as it
// is. It ends with the test.
func tamper(t *testing.T, edge string, alter func() func(frame []byte) []byte) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = l.Close() })
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", edge)
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() {
				defer server.Close()
				_, _ = io.Copy(server, client)
			})
			running.Go(func() {
				defer client.Close()
				_ = pass(bufio.NewReader(server), client, alter())
			})
		}
	})
	return l.Addr().String()
}

// pass copies frames.
func pass(in *bufio.Reader, out io.Writer, alter func(frame []byte) []byte) error {
	for {
		head, err := in.Peek(4)
		if err != nil {
			return err
		}
		frame := make([]byte, 4+(int(head[0])<<16|int(head[1])<<8|int(head[2])))
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		if wirev1.FrameType(frame[3]) == wirev1.FrameType_FRAME_TYPE_MESSAGE {
			frame = alter(frame)
		}
		if _, err := out.Write(frame); err != nil {
			return err
		}
	}
}
