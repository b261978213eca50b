package million

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
)

// tool is a worker within the test's process.
type tool struct {
	t   *testing.T
	in  io.WriteCloser
	out *json.Decoder
}

func (w *tool) ask(order string, answer any) {
	w.t.Helper()
	if _, err := fmt.Fprintln(w.in, order); err != nil {
		w.t.Fatal(err)
	}
	w.hear(answer)
}

func (w *tool) hear(answer any) {
	w.t.Helper()
	if err := w.out.Decode(answer); err != nil {
		w.t.Fatal(err)
	}
}

func (w *tool) report() (got tally) {
	w.t.Helper()
	w.ask("report", &got)
	return got
}

func TestWorkerCountsBroadcastsAndUnicasts(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	arg, err := json.Marshal(&job{Addr: m.EdgeAddr(), First: 100, Conns: 50, From: [3][4]byte{{127, 0, 2, 1}, {127, 0, 2, 2}, {127, 0, 2, 3}}, Every: 10})
	if err != nil {
		t.Fatal(err)
	}
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := suite.Obey(t.Context(), work, string(arg), "", inRead, outWrite)
		ended <- err
		_ = outWrite.CloseWithError(fmt.Errorf("the worker ended: %w", err))
	}()
	w := &tool{t, in, json.NewDecoder(out)}
	said, there := "", 0
	w.hear(&said)
	if w.ask("connect", &there); there != 50 {
		t.Fatalf("%d are connected", there)
	}
	p, err := publisher.New(t.Context(), m.RouterAddr(), everyone, size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for _, c := range []struct {
		topics []string
		want   int
	}{
		{[]string{everyone}, 50},
		{[]string{fmt.Sprintf(ownTopic, 100), fmt.Sprintf(ownTopic, 140)}, 2},
	} {
		w.ask("clear", &said)
		began := time.Now()
		if err := p.PublishTo(c.topics, began); err != nil {
			t.Fatal(err)
		}
		got := w.report()
		for got.Connections < c.want {
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("%v: got %+v, want %d connections", c.topics, got, c.want)
			}
			got = w.report()
		}
		if got.Deliveries != c.want || got.Last.Before(began) || len(got.Took) == 0 || got.Took[0] <= 0 {
			t.Fatalf("%v: got %+v", c.topics, got)
		}
	}
	w.ask("rest", &said)
	began := time.Now()
	if err := p.PublishTo([]string{everyone}, began); err != nil {
		t.Fatal(err)
	}
	for w.report().Deliveries < 52 { // it reads now and then
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("at rest: %+v", w.report())
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerObeysOnlyWhatItKnows(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	arg, err := json.Marshal(&job{Addr: m.EdgeAddr(), Conns: 1, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Obey(t.Context(), work, string(arg), "", strings.NewReader("dance\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "dance") {
		t.Fatalf("got %v", err)
	}
	if err := suite.Obey(t.Context(), work, "{", "", strings.NewReader(""), io.Discard); err == nil {
		t.Fatal("half a job was taken")
	}
}

func TestAnEdgeHoldsSome(t *testing.T) {
	if n, err := perEdge(); err != nil || n < 1 || n > 64_000 {
		t.Errorf("got %d, %v", n, err)
	}
}
