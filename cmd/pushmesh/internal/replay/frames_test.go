package replay

import (
	"bytes"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func TestScanMessageFindsSeqAndPayloadInAnyOrder(t *testing.T) {
	body, err := wire.Body(&wirev1.Message{Payload: []byte("hi"), PublishedAt: 5, Headers: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	head := wire.AppendHead(nil, "room/1", 300)
	for _, in := range [][]byte{append(bytes.Clone(head), body...), append(bytes.Clone(body), head...)} {
		seq, payload, err := scanMessage(in)
		if err != nil || seq != 300 || string(payload) != "hi" {
			t.Fatalf("%d %q %v", seq, payload, err)
		}
	}
}

func FuzzScanMessage(f *testing.F) {
	body, _ := proto.Marshal(&wirev1.Message{Topic: "t", Seq: 1, Payload: []byte("p")})
	f.Add(body)
	f.Add([]byte{0x12, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		var m wirev1.Message
		_, payload, err := scanMessage(in)
		if proto.Unmarshal(in, &m) != nil {
			return // what the scan does not look at may be broken
		}
		if err != nil {
			t.Fatalf("a good message was refused: %v", err)
		}
		if len(payload) > len(in) {
			t.Fatalf("%d bytes of payload in %d", len(payload), len(in))
		}
		// as an edge encodes it: each field once
		once, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		seq, payload, err := scanMessage(once)
		if err != nil || seq != m.GetSeq() || !bytes.Equal(payload, m.GetPayload()) {
			t.Fatalf("seq %d, payload %q, %v of %v", seq, payload, err, &m)
		}
	})
}

func TestAckIsWhatTheProtocolSays(t *testing.T) {
	frame := appendAck(nil, "room/1/chat", 1<<50, 12345)
	ft, body, err := wire.Read(bytes.NewReader(frame), nil, wire.MaxBody)
	if err != nil || ft != wirev1.FrameType_FRAME_TYPE_ACK {
		t.Fatalf("%v %v", ft, err)
	}
	var ack wirev1.Ack
	if err := proto.Unmarshal(body, &ack); err != nil {
		t.Fatal(err)
	}
	want := &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1/chat", Epoch: 1 << 50, Seq: 12345, Through: true}}}
	if !proto.Equal(&ack, want) {
		t.Fatalf("got %v", &ack)
	}
}

func TestMarkRoundTrip(t *testing.T) {
	want := mark{run: 1 << 63, room: 7, index: 1720, sent: 1234567890}
	payload, err := want.payload(`"quoted"`, "a\nb")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := readMark(payload); !ok || got != want {
		t.Fatalf("got %+v %v of %s", got, ok, payload)
	}
	if _, ok := readMark([]byte("hello")); ok {
		t.Fatal("a mark in a payload without one")
	}
}

func FuzzReadMark(f *testing.F) {
	payload, _ := mark{run: 1, index: 2}.payload("u", "t")
	f.Add(payload)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, ok := readMark(in)
		if !ok {
			return
		}
		again, err := m.payload("", "")
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := readMark(again); !ok || back != m {
			t.Fatalf("%+v became %+v", m, back)
		}
	})
}

// Frames arrive whole however the bytes are cut.
func TestInboxPutsCutFramesTogether(t *testing.T) {
	var stream []byte
	const frames = 12
	for i := range frames {
		stream = wire.AppendMessage(stream, "t", uint64(i+1), bytes.Repeat([]byte{1}, i*397))
	}
	for _, cut := range []int{1, 3, 1000, len(stream)} {
		ours, theirs := tcpPair(t)
		go func() {
			for at := 0; at < len(stream); at += cut {
				_, _ = theirs.Write(stream[at:min(at+cut, len(stream))])
			}
		}()
		in, err := newInbox(ours)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < frames {
			err := in.read(func(ft wirev1.FrameType, body []byte) error {
				if ft == wirev1.FrameType_FRAME_TYPE_MESSAGE {
					if want := wire.AppendHead(nil, "t", uint64(n+1)); !bytes.HasPrefix(body, want) || len(body) != len(want)+n*397 {
						t.Errorf("cut %d: frame %d has %d bytes", cut, n, len(body))
					}
					n++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func tcpPair(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close(); _ = accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}
