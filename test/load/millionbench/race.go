package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// race is one run: workers, and what was found.
type race struct {
	*config
	mesh    *local.Mesh
	dir     local.Dir
	workers []*helper
	rows    []table.Row
}

// helper is the other end of a worker.
type helper struct {
	process *local.Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// ask sends an order and returns what follows its name in the answer.
func (h *helper) ask(order, answer string) (string, error) {
	if _, err := fmt.Fprintln(h.in, order); err != nil {
		return "", fmt.Errorf("%s: %w: %s", h.process.Name, err, h.process.Log())
	}
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", h.process.Name, err, h.process.Log())
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), answer)
	if !ok {
		return "", fmt.Errorf("%s said %q", h.process.Name, line)
	}
	return strings.TrimSpace(rest), nil
}

func (r *race) stop() {
	for _, h := range r.workers {
		_ = h.in.Close() // which ends it
	}
	for _, h := range r.workers {
		h.process.Stop()
	}
}

func (r *race) run(ctx context.Context) error {
	before, err := r.measure()
	if err != nil {
		return err
	}
	if err := r.hire(); err != nil {
		return err
	}
	began := time.Now()
	cost, err := r.costOf(func() error { return r.connect(ctx) })
	if err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Printf("connected after %.0f s; CPU of each connection: %s\n", took.Seconds(), cost)
	select {
	case <-time.After(r.hold):
	case <-ctx.Done():
		return ctx.Err()
	}
	idle, err := r.measure()
	if err != nil {
		return err
	}
	r.connections(took, cost, before, idle)
	if err := r.broadcast(ctx); err != nil {
		return err
	}
	if err := r.unicast(ctx); err != nil {
		return err
	}
	return r.alive()
}

// hire starts a worker for every edge.
func (r *race) hire() error {
	n := len(r.mesh.Edges)
	for i, edge := range r.mesh.Edges {
		first, end := r.conns*i/n, r.conns*(i+1)/n
		j := job{Addr: edge.Addr, First: first, Conns: end - first, Every: max(1, r.conns/unicasts)}
		for k := range j.From {
			j.From[k] = [4]byte{127, 0, byte(1 + i), byte(1 + k)}
		}
		arg, err := json.Marshal(&j)
		if err != nil {
			return err
		}
		h := &helper{}
		var out io.Reader
		h.process, h.in, out, err = r.dir.StartSelf(fmt.Sprintf("worker-%d", i+1), workerFlag, string(arg))
		if err != nil {
			return err
		}
		h.out = bufio.NewReader(out)
		r.workers = append(r.workers, h)
	}
	return nil
}

// connectAtOnce is how many workers connect at a time: a few keep the machine busy.
const connectAtOnce = 4

func (r *race) connect(ctx context.Context) error {
	turn := make(chan struct{}, connectAtOnce)
	errs := make(chan error, len(r.workers))
	for _, h := range r.workers {
		turn <- struct{}{}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		go func() {
			_, err := h.ask("connect", "connected")
			<-turn
			errs <- err
		}()
	}
	var all []error
	for range r.workers {
		select {
		case err := <-errs:
			all = append(all, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(all...)
}

// costOf says what CPU each connection took of whom while something went on, in µs.
func (r *race) costOf(do func() error) (string, error) {
	workers := make([]int, 0, len(r.workers))
	for _, h := range r.workers {
		workers = append(workers, h.process.PID())
	}
	who := []struct {
		name string
		pids []int
	}{
		{"edges", r.mesh.PIDs()}, {"clients", workers}, {"store", []int{r.mesh.Store.PID()}}, {"router", []int{r.mesh.Router.PID()}}, {"NATS", []int{r.mesh.NATS.PID()}},
	}
	var before []time.Duration
	for _, w := range who {
		cpu, err := procfs.CPU(w.pids...)
		if err != nil {
			return "", err
		}
		before = append(before, cpu)
	}
	if err := do(); err != nil {
		return "", err
	}
	var all []string
	for i, w := range who {
		cpu, err := procfs.CPU(w.pids...)
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s %.1f µs", w.name, (cpu-before[i]).Seconds()*1e6/float64(r.conns)))
	}
	return strings.Join(all, ", "), nil
}

// footprint is what everything takes.
type footprint struct{ edges, kernel, free int64 }

func (r *race) measure() (footprint, error) {
	edges, err := procfs.RSS(r.mesh.PIDs()...)
	if err != nil {
		return footprint{}, err
	}
	kernel, err := procfs.Kernel()
	if err != nil {
		return footprint{}, err
	}
	free, err := procfs.Available()
	return footprint{edges, kernel, free}, err
}

func (r *race) connections(took time.Duration, cost string, before, idle footprint) {
	n := float64(r.conns)
	rss := fmt.Sprintf("%d edges, %.1f MB each before", len(r.mesh.Edges), float64(before.edges)/1e6/float64(len(r.mesh.Edges)))
	r.rows = append(r.rows,
		table.AtLeast("connections held, subscribed and heartbeating", n, "1", million, ""),
		table.Figure("time to connect them", took.Seconds(), "s", fmt.Sprintf("%.0f/s; CPU of each: %s", n/took.Seconds(), cost)),
		table.AtMost("RSS of the edges per connection", float64(idle.edges-before.edges)/n, "B", 1024, rss),
		table.Figure("the same, processes themselves included", float64(idle.edges)/n, "B", ""),
		table.Figure("kernel memory per connection, both ends", float64(idle.kernel-before.kernel)/n, "B", "caches that it could give back included"),
		table.Figure("available memory of the machine per connection, clients and all", float64(before.free-idle.free)/n, "B", ""),
	)
}

// size of payloads.
const size = 128

// broadcast publishes one message to all.
func (r *race) broadcast(ctx context.Context) error {
	got, first, err := r.publish(ctx, []string{everyone}, r.conns)
	if err != nil {
		return err
	}
	took := got.Last.Sub(first)
	r.rows = append(r.rows,
		table.AtMost("broadcast: until the last subscriber has it", took.Seconds(), "s", 10, fmt.Sprintf("%.0f deliveries/s", float64(got.Deliveries)/took.Seconds())),
		table.AtMost("broadcast: missing", float64(r.conns-got.Connections), "1", 0, ""),
		table.Figure("broadcast: p50", percentile(got.Took, 0.5), "ms", ""),
	)
	return nil
}

// unicast publishes one message each to some connections all over the edges.
func (r *race) unicast(ctx context.Context) error {
	var topics []string
	every := max(1, r.conns/unicasts)
	for n := 0; n < r.conns && len(topics) < unicasts; n += every {
		topics = append(topics, fmt.Sprintf(ownTopic, n))
	}
	got, _, err := r.publish(ctx, topics, len(topics))
	if err != nil {
		return err
	}
	r.rows = append(r.rows,
		table.AtMost(fmt.Sprintf("%d unicasts: missing", len(topics)), float64(len(topics)-got.Connections), "1", 0, ""),
		table.Figure(fmt.Sprintf("%d unicasts: p50", len(topics)), percentile(got.Took, 0.5), "ms", ""),
		table.Figure(fmt.Sprintf("%d unicasts: p99", len(topics)), percentile(got.Took, 0.99), "ms", ""),
	)
	return nil
}

// publish sends a message to each topic, all at once, and collects until so many deliveries have
// come, or none does any more.
func (r *race) publish(ctx context.Context, topics []string, want int) (tally, time.Time, error) {
	const patience = 20 * time.Second
	var all tally
	if err := r.tell("clear"); err != nil {
		return all, time.Time{}, err
	}
	p, err := publisher.New(ctx, r.mesh.Router.Addr, topics[0], size)
	if err != nil {
		return all, time.Time{}, err
	}
	began := time.Now()
	err = p.PublishTo(topics, began)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return all, began, err
	}
	for progress := began; all.Deliveries < want && time.Since(progress) < patience; {
		select {
		case <-time.After(500 * time.Millisecond): // asking costs the machine some: not more often
		case <-ctx.Done():
			return all, began, ctx.Err()
		}
		now, err := r.collect()
		if err != nil {
			return all, began, err
		}
		if now.Deliveries > all.Deliveries {
			progress = time.Now()
		}
		all = now
	}
	return all, began, r.tell("rest")
}

// tell has every worker obey an order that is answered with its name.
func (r *race) tell(order string) error {
	for _, h := range r.workers {
		if _, err := h.ask(order, order); err != nil {
			return err
		}
	}
	return nil
}

func (r *race) collect() (tally, error) {
	var all tally
	for _, h := range r.workers {
		text, err := h.ask("report", "report")
		if err != nil {
			return all, err
		}
		var one tally
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			return all, err
		}
		all.Deliveries += one.Deliveries
		all.Connections += one.Connections
		all.Pongs += one.Pongs
		all.Took = append(all.Took, one.Took...)
		if one.Last.After(all.Last) {
			all.Last = one.Last
		}
	}
	return all, nil
}

// alive says how many pings were answered: every connection is still there, or a worker would have
// failed.
func (r *race) alive() error {
	all, err := r.collect()
	if err == nil {
		r.rows = append(r.rows, table.Figure("pings answered", float64(all.Pongs), "1", ""))
	}
	return err
}

func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(float64(len(v))*p))]
}
