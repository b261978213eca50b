package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// job of a worker: a publisher or subscribers.
type job struct {
	Kind   string // a key of Workers
	Addr   string
	Addrs  []string // of subscribers: topics take turns among them
	Topics []string
	Size   int // of a payload, bytes
	// that may be unanswered, each with a message for every topic; 0: messages leave when they are
	// due
	Frames int
	Rate   float64       // messages a second where they leave when they are due
	Span   time.Duration // of publishing
	// Sources of an open loop.
	Sources []source
}

// Workers are those of this suite. Publishers are told "go" and answer once everything is answered;
// subscribers are told "clear", which begins a tally, and "report", which says it.
var Workers = map[string]suite.Work{
	"hose":       worker(hose),
	"sdk":        worker(sdk),
	"due":        worker(due),
	"due-frames": worker(dueFrames),
	"nats":       worker(natsPublisher),
	"subs":       worker(subscribers),
	"nats-subs":  worker(natsSubscribers),
	"open-loop":  worker(openLoop),
	"null":       worker(nullRouter),
}

func worker(do func(ctx context.Context, j *job, orders <-chan string, say func(any) error) error) suite.Work {
	return func(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) error {
		j := &job{}
		return errors.Join(json.Unmarshal(arg, j), do(ctx, j, orders, say))
	}
}

// tally is what a worker found, and where it listens, if it does.
type tally struct {
	Addr       string
	N, Refused int64
	Last       time.Time // when the last message came
	Took       []float64 // µs of each message from when it was due, where those were stamped
}

func (t *tally) add(o tally) {
	t.N += o.N
	t.Refused += o.Refused
	t.Took = append(t.Took, o.Took...)
	if o.Last.After(t.Last) {
		t.Last = o.Last
	}
}

// at is a quantile in µs.
func (t *tally) at(q float64) float64 { return table.At(t.Took, q) }

// ask has a worker obey an order that it answers with a tally.
func ask(w *suite.Worker, order string) (t tally, err error) {
	err = w.Ask(order, &t)
	return t, err
}

// hold starts an edge without connections that wants topics, numbers FROM to before TO of a pattern
// such as user/%d/inbox, and waits until it has announced that.
func (b *bench) hold(m *local.Mesh, id, topics string, from, to int, more ...string) (*suite.Worker, error) {
	return b.Start(id, nil, append([]string{
		filepath.Join(b.Tools, "mesh.test"), "hold", "-id", id, "-nats", "nats://" + m.NATS.Addr, "-stores", m.Store.Addr,
		"-topics", topics, "-from", strconv.Itoa(from), "-to", strconv.Itoa(to),
	}, more...)...)
}

// names of topics.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("live/%d", i)
	}
	return all
}
