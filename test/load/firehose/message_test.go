package firehose

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestMessagesAreItems(t *testing.T) {
	plain, urgent := NewMessage("live/1", []byte("payload"), 0), NewMessage("live/2", nil, 9)
	request := urgent.Append(plain.Append(nil, 7), 1<<34)
	got := &pushmeshv1.PublishStreamRequest{}
	if err := proto.Unmarshal(request, got); err != nil {
		t.Fatal(err)
	}
	want := &pushmeshv1.PublishStreamRequest{Batch: []*pushmeshv1.PublishStreamRequest_Item{
		{Ref: 7, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Payload: []byte("payload")}},
		{Ref: 1 << 34, Message: &pushmeshv1.PublishRequest{Topic: "live/2", Priority: 9}},
	}}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
