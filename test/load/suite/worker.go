package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// WorkerFlag makes the program a worker; its kind, a JSON that the kind knows, and the file of a
// CPU profile follow.
const WorkerFlag = "-worker"

// Work is a kind of worker, a process of its own: it says that it is ready, and then obeys orders,
// a line each, with one answer to each, until there are no more. What it says is encoded as JSON.
type Work func(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) error

// Obey does the work of a worker, with orders from in and answers to out.
func Obey(ctx context.Context, work Work, arg, profile string, in io.Reader, out io.Writer) (err error) {
	defer try.Catch(&err)
	if profile != "" {
		f := try.Get(os.Create(profile))
		defer func() { err = errors.Join(err, f.Close()) }()
		try.Do(pprof.StartCPUProfile(f))
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
	return work(ctx, []byte(arg), orders, json.NewEncoder(out).Encode)
}

// Worker as seen from the program that started it.
type Worker struct {
	*local.Process
	in  io.WriteCloser
	out *json.Decoder
}

// Hire starts this program as a worker and waits until it is ready; ready, if any, takes what it
// says then. by is a program that starts it with another priority, with its arguments.
func (r *Run) Hire(name, kind string, arg, ready any, by ...string) (_ *Worker, err error) {
	defer try.Catch(&err)
	self := try.Get(os.Executable())
	text := try.Get(json.Marshal(arg))
	return r.Start(name, ready, append(slices.Clone(by), self, WorkerFlag, kind, string(text), r.profilePath(name))...)
}

// Start starts any program that does as a worker does.
func (r *Run) Start(name string, ready any, command ...string) (_ *Worker, err error) {
	defer try.Catch(&err)
	path := try.Get(exec.LookPath(command[0]))
	p, in, out, err := r.Dir.StartTool(name, path, command[1:]...)
	if err != nil {
		return nil, err
	}
	w := &Worker{p, in, json.NewDecoder(out)}
	if err := w.Hear(ready); err != nil {
		return nil, errors.Join(err, w.Dismiss())
	}
	return w, nil
}

// Tell gives an order, Hear waits for an answer, Ask does both. An answer that goes nowhere is not
// looked at.
func (w *Worker) Tell(order string) error {
	_, err := io.WriteString(w.in, order+"\n")
	return err
}

// Hear waits for an answer.
func (w *Worker) Hear(answer any) error {
	if answer == nil {
		answer = &json.RawMessage{}
	}
	if err := w.out.Decode(answer); err != nil {
		return fmt.Errorf("%s: %w: %s", w.Name, err, w.Tail(2000))
	}
	return nil
}

// Ask gives an order and waits for the answer.
func (w *Worker) Ask(order string, answer any) error {
	if err := w.Tell(order); err != nil {
		return fmt.Errorf("%s: %w: %s", w.Name, err, w.Tail(2000))
	}
	return w.Hear(answer)
}

// Dismiss ends the worker, and waits for that.
func (w *Worker) Dismiss() error {
	err := w.in.Close()
	select {
	case <-w.Done():
	case <-time.After(5 * time.Second):
		w.Kill()
	}
	return err
}
