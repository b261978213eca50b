package service

import (
	"context"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// chunkBytes of bodies go into one response: with one body of the most bytes on top it stays below
// gRPC's limit of 4 MiB for all but the largest.
const chunkBytes = 768 << 10

// ReadLog streams a range of a topic's log.
func (s *Service) ReadLog(req *meshv1.ReadLogRequest, stream grpc.ServerStreamingServer[meshv1.ReadLogResponse]) error {
	c := &chunks{stream: stream, most: req.GetMaxBytes()}
	err := s.cfg.Log.Read(stream.Context(), req.GetTopic(), req.GetEpoch(), req.GetFromSeq(), req.GetToSeq(), c.begin, c.add)
	if c.err != nil {
		return c.err
	}
	if err != nil {
		return s.refused(stream.Context(), "read log", err)
	}
	return c.flush()
}

// chunks gathers records into responses.
type chunks struct {
	stream   grpc.ServerStreamingServer[meshv1.ReadLogResponse]
	most     uint64 // bytes altogether; 0: no limit
	next     *meshv1.ReadLogResponse
	position shardlog.Position
	bytes    uint64 // of next
	all      uint64
	sent     bool
	err      error
}

func (c *chunks) begin(p shardlog.Position) error {
	c.position = p
	c.reset()
	return nil
}

func (c *chunks) reset() {
	c.next = &meshv1.ReadLogResponse{Epoch: c.position.Epoch, Head: c.position.Head, Oldest: c.position.Oldest}
	c.bytes = 0
}

func (c *chunks) add(seq uint64, r *run.Record) bool {
	size := uint64(len(r.Body))
	if c.most > 0 && c.all > 0 && c.all+size > c.most {
		return false
	}
	if c.bytes > 0 && c.bytes+size > chunkBytes {
		if c.err = c.flush(); c.err != nil {
			return false
		}
	}
	c.next.Records = append(c.next.Records, &meshv1.LogRecord{Seq: seq, ExpiresAt: r.ExpiresAt, Body: r.Body})
	c.bytes += size + 32
	c.all += max(size, 1)
	return true
}

// flush sends what is gathered; the first response also where nothing is.
func (c *chunks) flush() error {
	if c.sent && len(c.next.GetRecords()) == 0 {
		return nil
	}
	c.sent = true
	err := c.stream.Send(c.next)
	c.reset()
	return err
}

// ListKept answers with topics that keep their last message.
func (s *Service) ListKept(ctx context.Context, req *meshv1.StoreServiceListKeptRequest) (*meshv1.StoreServiceListKeptResponse, error) {
	limit := int(req.GetLimit())
	if limit == 0 || limit > maxPage {
		limit = maxPage
	}
	topics, shards, more, err := s.cfg.Log.ListKept(ctx, req.GetFilters(), req.GetAfter(), limit)
	if err != nil {
		return nil, s.refused(ctx, "list kept", err)
	}
	return &meshv1.StoreServiceListKeptResponse{Topics: topics, More: more, Shards: shards}, nil
}

// Heads answers for topics and for what filters match.
func (s *Service) Heads(ctx context.Context, req *meshv1.HeadsRequest) (*meshv1.HeadsResponse, error) {
	heads, shards, err := s.cfg.Log.Survey(ctx, req.GetTopics(), req.GetFilters(), int(req.GetLimit()))
	if err != nil {
		return nil, s.refused(ctx, "heads", err)
	}
	return &meshv1.HeadsResponse{Heads: heads, Shards: shards}, nil
}
