package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestWhichBodiesHaveAPayload(t *testing.T) {
	headers := map[string]string{"a": "b"}
	for name, tt := range map[string]struct {
		m    *wirev1.Message
		want bool
	}{
		"nothing at all":       {&wirev1.Message{}, false},
		"headers alone":        {&wirev1.Message{Headers: headers, PublishedAt: 1, Id: make([]byte, 16), From: "u"}, false},
		"a payload":            {&wirev1.Message{Payload: []byte("x")}, true},
		"a payload with more":  {&wirev1.Message{Payload: []byte("x"), Headers: headers, PublishedAt: 1}, true},
		"a payload of a zero":  {&wirev1.Message{Payload: []byte{0}}, true},
		"features, no payload": {&wirev1.Message{Mesh: []byte{1}}, false},
	} {
		body, err := Body(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		if got := HasPayload(body); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
		// another program's order of fields and empty fields
		again, err := proto.Marshal(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		if got := HasPayload(append(again, 0x1a, 0)); got != tt.want {
			t.Errorf("%s, with an empty field: %t", name, got)
		}
	}
	if !HasPayload([]byte{0x22}) {
		t.Error("bytes that are no body delete what is kept")
	}
}
