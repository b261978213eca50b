package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// workerFlag makes the program a worker; a JSON of job follows.
const workerFlag = "-worker"

// job of a worker: a publisher or subscribers.
type job struct {
	Kind   string // a key of kinds
	Addr   string
	Addrs  []string // of subscribers: topics take turns among them
	Topics []string
	Size   int // of a payload, bytes
	// that may be unanswered, each with a message for every topic; 0: messages leave when they are
	// due
	Frames int
	Rate   float64       // messages a second where they leave when they are due
	Span   time.Duration // of publishing
	// Profile of the worker's CPU goes to this file; "": none.
	Profile string
	// Sources of an open loop.
	Sources []source
}

// kinds of workers. Each connects, says ready, and then obeys orders: publishers are told "go" and
// answer once everything is answered; subscribers are told "clear", which begins a tally, and
// "report", which says it.
var kinds = map[string]func(ctx context.Context, j *job, orders <-chan string, say func(any) error) error{
	"hose":       hose,
	"sdk":        sdk,
	"due":        due,
	"due-frames": dueFrames,
	"nats":       natsPublisher,
	"subs":       subscribers,
	"nats-subs":  natsSubscribers,
	"open-loop":  openLoop,
	"null":       nullRouter,
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
func (t *tally) at(p float64) float64 {
	if len(t.Took) == 0 {
		return 0
	}
	slices.Sort(t.Took)
	return t.Took[min(len(t.Took)-1, int(p*float64(len(t.Took))))]
}

func work(ctx context.Context, arg string, in io.Reader, out io.Writer) (err error) {
	j := &job{}
	if err := json.Unmarshal([]byte(arg), j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	run := kinds[j.Kind]
	if run == nil {
		return fmt.Errorf("no such job: %q", j.Kind)
	}
	if j.Profile != "" {
		f, err := os.Create(j.Profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan string)
	go func() {
		defer close(orders) // who gave them is gone
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case orders <- lines.Text():
			case <-ctx.Done():
			}
		}
	}()
	enc := json.NewEncoder(out)
	return run(ctx, j, orders, enc.Encode)
}

// worker seen from the program that started it.
type worker struct {
	process *local.Process
	in      io.WriteCloser
	out     *json.Decoder
	addr    string // where it listens, if it does
}

// hire starts a worker and waits until it is ready.
func (b *bench) hire(name string, j job) (*worker, error) {
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	w := &worker{}
	var out io.Reader
	if w.process, w.in, out, err = b.dir.StartSelf(name, workerFlag, string(arg)); err != nil {
		return nil, err
	}
	w.out = json.NewDecoder(out)
	ready, err := w.hear()
	if err != nil {
		return nil, errors.Join(err, w.dismiss())
	}
	w.addr = ready.Addr
	return w, nil
}

// tell gives an order, hear waits for an answer, ask does both.
func (w *worker) tell(order string) error {
	_, err := io.WriteString(w.in, order+"\n")
	return err
}

func (w *worker) hear() (t tally, err error) {
	if err = w.out.Decode(&t); err != nil {
		err = fmt.Errorf("%s: %w: %s", w.process.Name, err, w.process.Log())
	}
	return t, err
}

func (w *worker) ask(order string) (tally, error) {
	if err := w.tell(order); err != nil {
		return tally{}, err
	}
	return w.hear()
}

func (w *worker) dismiss() error {
	err := w.in.Close()
	select {
	case <-w.process.Done():
	case <-time.After(5 * time.Second):
		w.process.Kill()
	}
	return err
}
