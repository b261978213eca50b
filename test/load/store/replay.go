package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// replayed is how many messages lie in the log of each replay.
const replayed = 500_000

// replay reads what was published from the store's gRPC, in this process.
func (b *bench) replay(ctx context.Context) error {
	for _, c := range []struct {
		name   string
		topics int
		goal   float64
	}{{"one topic", 1, 500_000}, {"1,000 interleaved topics", 1000, 200_000}} {
		row, err := b.replayOf(ctx, c.name, c.topics, c.goal)
		if err != nil {
			row = table.Failed("replay of "+c.name, "messages/s", err)
		}
		b.Add(row)
	}
	return nil
}

func (b *bench) replayOf(ctx context.Context, name string, topics int, goal float64) (row table.Row, err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	all := names("room", topics)
	frame := make([]string, max(topics, 64))
	for i := range frame {
		frame[i] = all[i%topics]
	}
	h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: frame, Size: payload, Window: max(1, 4096/len(frame))}))
	try.Do(h.RunFrames(ctx, replayed/len(frame)))
	want := h.Answered()
	if h.Refused() > 0 {
		return row, fmt.Errorf("%d messages were refused", h.Refused())
	}
	conn := try.Get(suite.Dial(m.Store.Addr,
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.Codec{}), grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(8<<20)))
	defer func() { err = errors.Join(err, conn.Close()) }()
	store := meshv1.NewStoreServiceClient(conn)
	w := try.Get(b.UsingMesh(m.Mesh))
	began := time.Now()
	got, err := readAll(ctx, store, all)
	span := time.Since(began)
	if err == nil && got != want {
		err = fmt.Errorf("%d messages of %d were read", got, want)
	}
	used, usedErr := w.Each(got)
	return table.AtLeast("replay of "+name+" over the store's gRPC, 256 B", float64(got)/span.Seconds(), "messages/s", goal,
		fmt.Sprintf("%d messages; %s", got, used)), errors.Join(err, usedErr)
}

// readers read side by side, as several edges or resuming sessions do.
const readers = 4

// readAll reads every topic once and sees to it that none of its messages is missing.
func readAll(ctx context.Context, store meshv1.StoreServiceClient, topics []string) (n int64, err error) {
	var read atomic.Int64
	err = suite.Each(len(topics), readers, func(_, i int) error {
		got, err := readTopic(ctx, store, topics[i])
		read.Add(got)
		return err
	})
	return read.Load(), err
}

func readTopic(ctx context.Context, store meshv1.StoreServiceClient, topic string) (n int64, err error) {
	defer try.Catch(&err)
	stream := try.Get(store.ReadLog(ctx, &meshv1.ReadLogRequest{Topic: topic}))
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		for _, r := range resp.GetRecords() {
			if n++; r.GetSeq() != uint64(n) || len(r.GetBody()) < payload {
				return n, fmt.Errorf("%s: seq %d with %d bytes where %d was to come", topic, r.GetSeq(), len(r.GetBody()), n)
			}
		}
	}
}
