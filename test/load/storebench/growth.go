package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	growthTopics = 4096
	growthReads  = 2000
)

// growth publishes until so many messages are stored, and looks each time how fast that was at last and how long a read takes.
func (b *bench) growth(ctx context.Context) (err error) {
	m, url, end, err := b.mesh(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	conn, err := grpc.NewClient(m.Store.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	all := names("room", growthTopics)
	const rated = 200 // frames, of which the rate is taken
	have := 0         // frames, and so messages of each topic
	for _, want := range b.stored {
		h, err := firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: all, Size: payload, Window: 4})
		if err != nil {
			return err
		}
		if more := int(want/growthTopics) - rated - have; more > 0 {
			if err := b.grow(ctx, m.Router.Addr, all, more); err != nil {
				return err
			}
			have += more
		}
		began := time.Now()
		if err := h.RunFrames(ctx, rated); err != nil {
			return err
		}
		have += rated
		rate := float64(h.Answered()) / time.Since(began).Seconds()
		took, err := reads(ctx, meshv1.NewStoreServiceClient(conn), all, uint64(have)) // #nosec G115 -- not negative
		if err != nil {
			return err
		}
		size, err := bytesOf(ctx, url)
		if err != nil {
			return err
		}
		b.add(table.Figure(fmt.Sprintf("append rate with %d messages stored, %d topics", want, growthTopics), rate, "messages/s", fmt.Sprintf("%.0f bytes of disk for each", float64(size)/float64(want))),
			table.Figure(fmt.Sprintf("read of one message of %d stored, p50", want), at(took, .5).Seconds()*1e3, "ms", "p99 "+ms(at(took, .99))))
	}
	return nil
}

// grow publishes so many frames, a message of each topic in each.
func (b *bench) grow(ctx context.Context, router string, all []string, frames int) error {
	h, err := firehose.Dial(ctx, firehose.Config{Addr: router, Topics: all, Size: payload, Window: 4})
	if err != nil {
		return err
	}
	return h.RunFrames(ctx, frames)
}

// reads of single messages, anywhere in the log.
func reads(ctx context.Context, store meshv1.StoreServiceClient, all []string, head uint64) (took []time.Duration, err error) {
	for range growthReads {
		seq := 1 + rand.Uint64N(head)
		began := time.Now()
		stream, err := store.ReadLog(ctx, &meshv1.ReadLogRequest{Topic: all[rand.IntN(len(all))], FromSeq: seq, ToSeq: seq})
		if err != nil {
			return nil, err
		}
		resp, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if len(resp.GetRecords()) != 1 {
			return nil, fmt.Errorf("%d records at seq %d of %d", len(resp.GetRecords()), seq, head)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

func bytesOf(ctx context.Context, url string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&n)
	return n, err
}
