package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// jetStream publishes to nats-server's own log, asynchronously as its documentation advises. Its
// files are not fsynced when it answers.
func (b *bench) jetStream(ctx context.Context) (err error) {
	defer try.Catch(&err)
	server := try.Get(b.Dir.StartJetStream(ctx, b.Programs.NATS, filepath.Join(string(b.Dir), "jetstream")))
	defer local.Stop(server)
	conn := try.Get(nats.Connect("nats://" + server.Addr))
	defer conn.Close()
	refused := make(chan error, 1)
	js := try.Get(jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
		select {
		case refused <- err:
		default:
		}
	})))
	try.Get(js.CreateStream(ctx, jetstream.StreamConfig{Name: "room", Subjects: []string{"room.>"}, Storage: jetstream.FileStorage}))
	text := make([]byte, payload)
	_, _ = rand.Read(text) // it never fails
	subjects := make([]string, topics)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("room.%d", i)
	}
	w := try.Get(suite.Using(suite.Self("client"), suite.Of("nats-server", server)))
	n := int64(0)
	began := time.Now()
	for ; time.Since(began) < 2*b.bareSpan; n++ {
		try.Get(js.PublishAsync(subjects[n%topics], text, jetstream.WithStallWait(10*time.Second)))
	}
	select {
	case <-js.PublishAsyncComplete():
	case err := <-refused:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	span := time.Since(began)
	used, err := w.Each(n)
	select {
	case e := <-refused:
		err = errors.Join(err, e)
	default:
	}
	if err != nil {
		return err
	}
	b.Add(table.Figure("JetStream, file storage, 256 B, 64 subjects, answered without fsync", float64(n)/span.Seconds(), "messages/s",
		fmt.Sprintf("one publisher, 4,096 unanswered; %s", used)))
	return nil
}
