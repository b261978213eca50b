package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	readerCount = 8
	// fillBatch messages are appended at a time to fill the log.
	fillBatch = 2000
)

// readers measures appends while eight readers read the whole of a long topic.
func (b *bench) readers(ctx context.Context) (err error) {
	defer try.Catch(&err)
	n := try.Get(startNode(ctx, store.Settings{DB: b.pg.URL(), DBReads: b.reading}))
	defer func() { err = errors.Join(err, n.stop(ctx)) }()
	began := time.Now()
	try.Do(n.fill(ctx, "room/long", b.messages))
	fmt.Printf("# %d messages appended in %.0f s\n", b.messages, time.Since(began).Seconds())
	stream := try.Get(newAppends(ctx, n.api))
	one := func(ctx context.Context, _ int) error {
		time.Sleep(5 * time.Millisecond)
		return stream.append(ctx, "room/short", 1)
	}
	load(ctx, 1, b.Span/2, one)
	before := less(load(ctx, 1, 2*b.Span, one))
	started := time.Now()
	child := try.Get(b.Hire("readers", "reads", reading{n.store.Addr(), "room/long", uint64(b.messages)}, nil))
	defer func() { err = errors.Join(err, child.Dismiss()) }()
	during := less(load(ctx, 1, 4*b.Span, one))
	var read int64
	try.Do(child.Ask("stop", &read))
	rate := float64(read) / time.Since(started).Seconds()
	ratio := during.tail() / before.tail()
	b.Add(table.AtMost(fmt.Sprintf("append p99 with eight readers of %d messages, of that without", b.messages), ratio, "x", 1.5,
		fmt.Sprintf("without: %s; with: %s; %.0f messages/s read", before, during, rate)))
	return err
}

// less takes the pause of 5 ms off.
func less(r *result) *result {
	for i := range r.took {
		r.took[i] -= 5 * time.Millisecond
	}
	return r
}

func (n *node) fill(ctx context.Context, topic string, messages int) (err error) {
	defer try.Catch(&err)
	s := try.Get(newAppends(ctx, n.api))
	for done := 0; done < messages; done += fillBatch {
		try.Do(s.append(ctx, topic, fillBatch))
	}
	return nil
}

// reading is what readers are told.
type reading struct {
	Addr, Topic string
	To          uint64
}

// reads is the readers' process: it reads until it is told to stop, then says how many messages
// came.
func reads(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	var r reading
	try.Do(json.Unmarshal(arg, &r))
	conn := try.Get(suite.Dial(r.Addr))
	defer func() { _ = conn.Close() }()
	try.Do(say("ready"))
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var read atomic.Int64
	errs := make([]error, readerCount)
	for i := range readerCount {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = readOnce(ctx, meshv1.NewStoreServiceClient(conn), &meshv1.ReadLogRequest{Topic: r.Topic, FromSeq: 1, ToSeq: r.To}, &read)
			}
		})
	}
	<-orders
	stopped := ctx.Err() == nil
	end()
	wg.Wait()
	for _, err := range errs {
		if err != nil && (!stopped || code.Of(err) != wirev1.Code_CODE_CANCELLED) {
			return err
		}
	}
	return say(read.Load())
}

func readOnce(ctx context.Context, api meshv1.StoreServiceClient, req *meshv1.ReadLogRequest, read *atomic.Int64) (err error) {
	defer try.Catch(&err)
	stream := try.Get(api.ReadLog(ctx, req))
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		read.Add(int64(len(resp.GetRecords())))
	}
}

// appends is one stream, used by one caller at a time.
type appends struct {
	stream meshv1.StoreService_AppendClient
	ref    uint64
}

func newAppends(ctx context.Context, api meshv1.StoreServiceClient) (*appends, error) {
	stream, err := api.Append(ctx)
	return &appends{stream: stream}, err
}

var body = []byte(strings.Repeat("x", 100))

// append appends n messages and waits for all answers.
func (a *appends) append(_ context.Context, topic string, n int) (err error) {
	defer try.Catch(&err)
	req := &meshv1.AppendRequest{}
	for range n {
		a.ref++
		id := uuid.Must(uuid.NewV7())
		req.Items = append(req.Items, &meshv1.AppendItem{Ref: a.ref, Topic: topic, Body: body, MessageId: id[:], PublishedAt: 1})
	}
	try.Do(a.stream.Send(req))
	var refused error
	for n > 0 {
		resp := try.Get(a.stream.Recv())
		for _, r := range resp.GetResults() {
			if n--; r.GetCode() != wirev1.Code_CODE_OK {
				refused = errors.New(r.GetError())
			}
		}
	}
	return refused
}
