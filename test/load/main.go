// Command load measures a server that fans messages out: what an idle connection costs, and what a delivery costs.
//
//	load -proto push  -addr 127.0.0.1:7400 -publish 127.0.0.1:7401 -pids 123 -conns 10000 -idle
//	load -proto redis -addr 127.0.0.1:6379 -pids 124 -conns 1000 -msgs 2000 -window 64
//	load -proto nats  -addr 127.0.0.1:4222 -pids 125 -conns 1000 -msgs 2000 -window 1 -json rows.jsonl
//
// One publisher publishes to one topic that all connections subscribe to. -window is how many messages may be published and not yet
// be with everyone. CPU and memory are the server's own, from /proc. A run in which a message is missing fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// config of a run.
type config struct {
	proto, addr, publish, topic, name, json string
	pids                                    []int
	conns, msgs, window, size               int
	idle                                    bool
	timeout                                 time.Duration
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&c.proto, "proto", "push", "push, redis or nats")
	f.StringVar(&c.addr, "addr", "127.0.0.1:7400", "where subscribers connect")
	f.StringVar(&c.publish, "publish", "127.0.0.1:7401", "push: the router to publish to (others: -addr)")
	f.StringVar(&c.topic, "topic", "bench/"+strconv.Itoa(os.Getpid()), "topic, channel or subject")
	f.StringVar(&c.name, "name", "", "of the server, in results; -proto by default")
	f.StringVar(&c.json, "json", "", "append the results to this file, an object a line")
	pids := f.String("pids", "", "the server's processes, separated by commas")
	f.IntVar(&c.conns, "conns", 1000, "subscribers")
	f.IntVar(&c.msgs, "msgs", 1000, "messages to publish")
	f.IntVar(&c.window, "window", 1, "messages in flight")
	f.IntVar(&c.size, "size", 64, "bytes of payload")
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
	if c.conns < 1 || c.msgs < 1 || c.window < 1 || c.size < 20 {
		return nil, errors.New("-conns, -msgs and -window are 1 at least, -size 20")
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
	p, err := newProtocol(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	before, err := usageOf(c.pids)
	if err != nil {
		return err
	}
	f := newFleet(c, p)
	defer f.close()
	if err := f.connect(ctx); err != nil {
		return err
	}
	connected, err := usageOf(c.pids)
	if err != nil {
		return err
	}
	var rows []row
	if c.idle {
		rows = idleRows(c, before, connected)
	} else if rows, err = fanout(ctx, c, p, f); err != nil {
		return err
	}
	return report(os.Stdout, c.json, rows)
}
