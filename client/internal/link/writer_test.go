package link

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Frames of many writers stay whole, and each writer's in order, however slowly the connection
// takes them.
func TestFramesOfManyWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := &writer{conn: near, clock: newClock()}
		const writers, each = 4, 200
		for i := range writers {
			go func() {
				for n := range each {
					if err := w.Send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: string(make([]byte, n%7*300)), Sub: uint32(i), Seq: uint64(n + 1)}}}); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		next := [writers]uint64{}
		for range writers * each {
			_, body, err := wire.Read(far, nil, wire.MaxBody)
			a := &wirev1.Ack{}
			if err != nil || proto.Unmarshal(body, a) != nil || len(a.GetEntries()) != 1 {
				t.Fatal(err, a)
			}
			if e := a.GetEntries()[0]; next[e.GetSub()]+1 != e.GetSeq() {
				t.Fatalf("writer %d: %d after %d", e.GetSub(), e.GetSeq(), next[e.GetSub()])
			} else {
				next[e.GetSub()]++
			}
		}
		_, _ = near.Close(), far.Close()
	})
}

// What waits for an edge that takes nothing is bounded: at the bound the connection is given up.
func TestWhatWaitsForAnEdgeIsBounded(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	w := &writer{conn: near, clock: newClock()}
	grow := func(n int) { w.Append(func(b []byte) []byte { return append(b, make([]byte, n)...) }) }
	grow(maxQueued)
	grow(1)
	if w.err != nil || len(w.buf) != maxQueued+1 {
		t.Fatalf("%v at the bound, %d bytes wait", w.err, len(w.buf))
	}
	grow(1)
	if !errors.Is(w.err, errStuck) || len(w.buf) != maxQueued+1 {
		t.Fatalf("%v beyond the bound, %d bytes wait", w.err, len(w.buf))
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if err := w.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{}); !errors.Is(err, errStuck) {
		t.Error(err)
	}
}
