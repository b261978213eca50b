package firehose

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
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

func TestResultsAreVisited(t *testing.T) {
	response, err := proto.Marshal(&pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{
		{Ref: 7, Response: &pushmeshv1.PublishResponse{Seq: 3}}, {Ref: 8, Code: wirev1.Code_CODE_OVERLOADED, Error: "later"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		ref  uint64
		code wirev1.Code
		text string
	}
	var got []result
	if err := Results(response, func(ref uint64, code wirev1.Code, text []byte) error {
		got = append(got, result{ref, code, string(text)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []result{{7, 0, ""}, {8, wirev1.Code_CODE_OVERLOADED, "later"}}; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
}
