// Command load measures a server that fans messages out: what an idle connection costs, and what a
// delivery costs.
//
//	load -proto push  -addr 127.0.0.1:7400 -publish 127.0.0.1:7401 -pids 123 -conns 10000 -idle
//	load -proto redis -addr 127.0.0.1:6379 -pids 124 -conns 1000 -span 2s -window 64
//	load -proto nats  -addr 127.0.0.1:4222 -pids 125 -conns 1000 -window 1 -json rows.jsonl
//
// One publisher publishes to one topic that all connections subscribe to. -window is how many
// messages may be published and not yet be with everyone. CPU and memory are the server's own, from
// /proc. A run in which a message is missing fails.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/fan"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	proto, addr, publish, topic, name, json string
	pids                                    []int
	conns, window, size                     int
	idle                                    bool
	span, timeout                           time.Duration
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&c.proto, "proto", "push", "push, redis, nats, mqtt or bare")
	f.StringVar(&c.addr, "addr", "127.0.0.1:7400", "where subscribers connect")
	f.StringVar(&c.publish, "publish", "127.0.0.1:7401", "push: the router to publish to (others: -addr)")
	f.StringVar(&c.topic, "topic", "bench/"+strconv.Itoa(os.Getpid()), "topic, channel or subject")
	f.StringVar(&c.name, "name", "", "of the server, in results; -proto by default")
	f.StringVar(&c.json, "json", "", "append the results to this file, an object a line")
	pids := f.String("pids", "", "the server's processes, separated by commas")
	f.IntVar(&c.conns, "conns", 1000, "subscribers")
	f.IntVar(&c.window, "window", 1, "messages in flight")
	f.IntVar(&c.size, "size", 64, "bytes of payload")
	f.DurationVar(&c.span, "span", 2*time.Second, "how long to publish")
	f.BoolVar(&c.idle, "idle", false, "only connect, subscribe, and look at memory")
	f.DurationVar(&c.timeout, "timeout", 2*time.Minute, "of the whole run")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for _, p := range strings.Split(*pids, ",") {
		pid, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil {
			return nil, fmt.Errorf("-pids %q: %w", *pids, err)
		}
		c.pids = append(c.pids, pid)
	}
	if c.conns < 1 || c.window < 1 || c.size < publisher.StampSize {
		return nil, fmt.Errorf("-conns and -window are 1 at least, -size %d", publisher.StampSize)
	}
	if c.name == "" {
		c.name = c.proto
	}
	return c, nil
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	rows, err := c.measure(ctx)
	if err != nil {
		return err
	}
	return errors.Join(table.Print(os.Stdout, rows), appendTo(c.json, rows))
}

// dialect of the server, and a publisher to it.
func (c *config) dialect(ctx context.Context) (swarm.Dialect, func() (fan.Source, error), error) {
	switch c.proto {
	case "push":
		d := &swarm.Push{Topics: func(int) []string { return []string{c.topic} }, HeartbeatMs: 600_000}
		return d, func() (fan.Source, error) { return publisher.New(ctx, c.publish, c.topic, c.size) }, nil
	case "redis":
		return swarm.Redis(c.topic, c.size), func() (fan.Source, error) { return publisher.Redis(ctx, c.addr, c.topic, c.size) }, nil
	case "nats":
		return swarm.NATS(c.topic, c.size), func() (fan.Source, error) { return publisher.NATS(ctx, c.addr, c.topic, c.size) }, nil
	case "mqtt":
		return &swarm.MQTT{Topic: c.topic}, func() (fan.Source, error) { return publisher.MQTT(ctx, c.addr, c.topic, c.size) }, nil
	case "bare":
		return &swarm.Bare{Size: c.size}, func() (fan.Source, error) { return publisher.Bare(ctx, c.addr, c.size) }, nil
	}
	return nil, nil, fmt.Errorf("-proto %q: push, redis, nats, mqtt or bare", c.proto)
}

// sampled is of how many deliveries one is timed.
const sampled = 64

func (c *config) measure(ctx context.Context) (rows []table.Row, err error) {
	d, src, err := c.dialect(ctx)
	if err != nil {
		return nil, err
	}
	rss, err := procfs.RSS(c.pids...)
	if err != nil {
		return nil, err
	}
	cpu, err := procfs.CPU(c.pids...)
	if err != nil {
		return nil, err
	}
	seen, took := 0, []time.Duration(nil)
	s, err := swarm.Dial(ctx, swarm.Config{Addr: c.addr, Dialect: d, Conns: c.conns, Message: func(_ int, frame []byte) {
		if seen++; seen%sampled == 0 {
			if at, ok := publisher.Stamped(frame); ok {
				took = append(took, time.Since(at))
			}
		}
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if c.idle {
		return c.idleRows(rss, cpu)
	}
	out := &fan.Out{Name: c.name, PIDs: c.pids, Conns: c.conns, Swarm: s, Patience: min(c.timeout, time.Minute)}
	if out.Source, err = src(); err != nil {
		return nil, err
	}
	got, err := out.Pump(ctx, c.window, c.span)
	if err = errors.Join(err, out.Source.Close()); err != nil {
		return nil, err
	}
	return c.fanRows(got, took)
}

func (c *config) idleRows(rss int64, cpu time.Duration) ([]table.Row, error) {
	rss1, err := procfs.RSS(c.pids...)
	if err != nil {
		return nil, err
	}
	cpu1, err := procfs.CPU(c.pids...)
	name, n := fmt.Sprintf("%s, %d idle connections", c.name, c.conns), float64(c.conns)
	return []table.Row{
		table.Figure(name+": memory", float64(rss1-rss)/n, "B/connection", ""),
		table.Figure(name+": CPU to connect and subscribe", (cpu1-cpu).Seconds()*1e6/n, "µs/connection", ""),
	}, err
}

func (c *config) fanRows(got fan.Sample, took []time.Duration) ([]table.Row, error) {
	if len(took) == 0 {
		return nil, errors.New("no delivery carried a stamp")
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	name := fmt.Sprintf("%s fan-out to %d, window %d", c.name, c.conns, c.window)
	return []table.Row{
		table.Figure(name+": rate", got.Rate(), "deliveries/s", ""),
		table.Figure(name+": server CPU", got.PerDelivery(), "µs/delivery", ""),
		table.Figure(name+": latency p50", ms(took[len(took)/2]), "ms", ""),
		table.Figure(name+": latency p99", ms(took[len(took)*99/100]), "ms", ""),
	}, nil
}

// appendTo appends the rows to a file, an object a line.
func appendTo(file string, rows []table.Row) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	enc := json.NewEncoder(f)
	for _, r := range rows {
		err = errors.Join(err, enc.Encode(r))
	}
	return errors.Join(err, f.Close())
}
