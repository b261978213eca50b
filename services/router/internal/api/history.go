package api

import (
	"context"
	"errors"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Log is what History needs of the store (storeclient.Client).
type Log interface {
	ReadLog(ctx context.Context, req *meshv1.ReadLogRequest, take func(*meshv1.ReadLogResponse) error) error
	Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error)
}

const (
	maxHeadTopics = 10_000
	// historyBatch is about how many bytes of payloads one ReadResponse holds: a message more is
	// still below gRPC's 4 MiB.
	historyBatch = 512 << 10
)

// History is pushmesh.v1.HistoryService.
type History struct {
	pushmeshv1.UnimplementedHistoryServiceServer
	log Log
}

// NewHistory makes the service.
func NewHistory(log Log) *History { return &History{log: log} }

var errEnough = errors.New("limit reached")

// Read implements HistoryService.
func (h *History) Read(req *pushmeshv1.ReadRequest, stream grpc.ServerStreamingServer[pushmeshv1.ReadResponse]) error {
	if err := checkTopics([]string{req.GetTopic()}, 1); err != nil {
		return err
	}
	ask := &meshv1.ReadLogRequest{Topic: req.GetTopic(), Epoch: req.GetEpoch(), FromSeq: max(req.GetFromSeq(), 1)}
	left := uint64(math.MaxUint64)
	if req.GetLimit() > 0 {
		left = req.GetLimit()
	}
	out := &batch{stream: stream, topic: req.GetTopic()}
	var epoch uint64
	err := h.log.ReadLog(stream.Context(), ask, func(resp *meshv1.ReadLogResponse) error {
		if epoch == 0 {
			epoch = resp.GetEpoch()
		}
		for _, r := range resp.GetRecords() {
			if err := out.add(epoch, r); err != nil {
				return err
			}
			if left--; left == 0 {
				return errEnough
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return code.From(err)
	}
	return out.flush()
}

// batch gathers messages into responses.
type batch struct {
	stream grpc.ServerStreamingServer[pushmeshv1.ReadResponse]
	topic  string
	resp   pushmeshv1.ReadResponse
	size   int
}

func (b *batch) add(epoch uint64, r *meshv1.LogRecord) error {
	var m wirev1.Message
	shared, _ := wire.Cut(r.GetBody())
	if err := proto.Unmarshal(shared, &m); err != nil {
		return code.New(wirev1.Code_CODE_INTERNAL, "a stored message can't be decoded: "+err.Error())
	}
	b.resp.Messages = append(b.resp.Messages, &pushmeshv1.StoredMessage{
		Topic: b.topic, Epoch: epoch, Seq: r.GetSeq(), Payload: m.GetPayload(), PublishedAt: m.GetPublishedAt(), Id: m.GetId(),
		Headers: m.GetHeaders(), Priority: m.GetPriority(), Traceparent: m.GetTraceparent(), From: m.GetFrom(),
	})
	if b.size += len(r.GetBody()); b.size < historyBatch {
		return nil
	}
	return b.flush()
}

func (b *batch) flush() error {
	if len(b.resp.GetMessages()) == 0 {
		return nil
	}
	err := b.stream.Send(&b.resp)
	b.resp.Messages, b.size = nil, 0
	return err
}

// Head implements HistoryService.
func (h *History) Head(ctx context.Context, req *pushmeshv1.HeadRequest) (*pushmeshv1.HeadResponse, error) {
	if err := checkTopics(req.GetTopics(), maxHeadTopics); err != nil {
		return nil, err
	}
	heads, err := h.log.Heads(ctx, req.GetTopics(), nil, 0)
	if err != nil {
		return nil, code.From(err)
	}
	byTopic := make(map[string]*meshv1.Head, len(heads))
	for _, head := range heads {
		byTopic[head.GetTopic()] = head
	}
	resp := &pushmeshv1.HeadResponse{}
	for _, t := range req.GetTopics() {
		if head := byTopic[t]; head != nil {
			resp.Heads = append(resp.Heads, &pushmeshv1.TopicHead{Topic: t, Epoch: head.GetEpoch(), Seq: head.GetHead(), Oldest: head.GetOldest()})
		}
	}
	return resp, nil
}
