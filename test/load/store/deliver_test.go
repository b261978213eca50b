package store

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestAMessageIsReadAsTheGeneratedCodeDoes(t *testing.T) {
	for _, want := range []*wirev1.Message{
		{Topic: "room/1", Seq: 7, Payload: []byte("x"), PublishedAt: 3, Id: []byte("0123456789abcdef")},
		{Topic: "room/1", Seq: 1 << 40, Payload: make([]byte, 300), Attempt: 2, Priority: 5, Headers: map[string]string{"a": "b"}, Score: 1, Subs: []uint32{1, 2}},
		{},
	} {
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readMessage(b)
		if err != nil || m.seq != want.GetSeq() || m.attempt != uint64(want.GetAttempt()) || string(m.payload) != string(want.GetPayload()) {
			t.Errorf("%+v, %v; want %v", m, err, want)
		}
		if len(b) > 0 {
			if _, err := readMessage(b[:len(b)-1]); err == nil {
				t.Errorf("a part of %v was taken for a message", want)
			}
		}
	}
}
