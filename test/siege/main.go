// Command siege has hostile clients, producers, neighbours and databases attack a mesh of processes
// while well-behaved users of it measure what they get, and prints what each attack got, and what
// it cost others. `make siege` builds what it needs and runs it; docs/siege.md explains the table.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
	"github.com/pushmesh/pushmesh/test/siege/attack"
)

// options of a siege.
type options struct {
	bin, nats, postgresDir, json, only string
	within, span, calm                 time.Duration
	subscribers, topics, percent       int
}

func main() {
	// Children end with the thread that started them, which therefore is the one that lives as long
	// as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 5 && os.Args[1] == attackerFlag {
		err = attacker(ctx, os.Args[2], os.Args[3], os.Args[4])
	} else {
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, only *regexp.Regexp, err error) {
	f := flag.NewFlagSet("siege", flag.ContinueOnError)
	f.StringVar(&o.bin, "bin", "bin", "folder of compute, edge, router and store")
	f.StringVar(&o.nats, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&o.postgresDir, "postgres-dir", "", "folder below which Postgres keeps its files; empty: that of temporary files")
	f.StringVar(&o.json, "json", "", "write the rows to this file")
	f.StringVar(&o.only, "only", "", "play only attacks whose name matches; several are separated by commas")
	f.DurationVar(&o.within, "within", 20*time.Minute, "attacks for which there is no time left by then are not played")
	f.DurationVar(&o.span, "span", 15*time.Second, "how long an attack goes on")
	f.DurationVar(&o.calm, "calm", 8*time.Second, "how long others are measured before each attack")
	f.IntVar(&o.subscribers, "subscribers", 2000, "well-behaved ones")
	f.IntVar(&o.topics, "topics", 95_000, "topics that attackers read")
	f.IntVar(&o.percent, "percent", 100, "of the full size of attacks")
	if err := f.Parse(args); err != nil {
		return o, nil, err
	}
	if o.span <= 0 || o.calm <= 0 || o.subscribers < 1 || o.topics < 1 || o.percent < 1 {
		return o, nil, errors.New("-span, -calm, -subscribers, -topics and -percent are above 0")
	}
	only, err = regexp.Compile("^(" + strings.ReplaceAll(o.only, ",", "|") + ")")
	return o, only, err
}

func run(ctx context.Context, args []string) (err error) {
	defer try.Catch(&err)
	o, only, err := parse(args)
	if err != nil {
		return err
	}
	began := time.Now()
	o.bin, o.nats = try.Get(filepath.Abs(o.bin)), try.Get(filepath.Abs(o.nats))
	m := try.Get(startMesh(ctx, o))
	defer func() { err = errors.Join(err, m.stop()) }()
	s := &siege{mesh: m, options: o, ends: began.Add(o.within)}
	try.Do(s.begin(ctx))
	defer func() { err = errors.Join(err, s.crowd.Close()) }()
	fmt.Printf("a mesh of processes with %d well-behaved subscribers; load average %s\n\n%s", o.subscribers, table.LoadAverage(), head)
	var all []attack.Attack
	for _, a := range attack.All() {
		if o.only == "" || only.MatchString(a.Name) {
			all = append(all, a)
		}
	}
	if o.only == "" || only.MatchString(together) {
		all = append(all, allTogether(all))
	}
	for i, a := range all {
		last := i == len(all)-1
		if err := s.play(ctx, a, last); err != nil {
			s.rows = append(s.rows, table.Failed(a.Name, "-", err))
			fmt.Printf("| %s | %v |\n", a.Name, err)
		}
	}
	s.rows = append(s.rows, s.settled(ctx))
	fmt.Println()
	return errors.Join(table.Print(os.Stdout, s.rows), table.WriteJSON(o.json, s.rows), ctx.Err())
}

// together is the name of the attack that is all others at once.
const together = "all"

func allTogether(of []attack.Attack) attack.Attack {
	var names []string
	for _, a := range of {
		if !a.Alone {
			names = append(names, a.Name)
		}
	}
	return attack.Attack{Name: together, What: strings.Join(names, ", "), Metric: "pushmesh_edge_closes_total"}
}

// attackerFlag makes the program an attacker: names of attacks, how long, and the target follow.
const attackerFlag = "-attacker"

// report is what an attacker says at its end.
type report struct {
	Got    attack.Counts
	Faults []string
}

// endWithin is how long attacks may take to end.
const endWithin = 5 * time.Second

// attacker attacks from a process of its own, so that no honest user waits for it, and writes what
// it got to its output.
func attacker(ctx context.Context, names, span, target string) (err error) {
	defer try.Catch(&err)
	var t attack.Target
	try.Do(json.Unmarshal([]byte(target), &t))
	ctx, cancel := context.WithTimeout(ctx, try.Get(time.ParseDuration(span)))
	defer cancel()
	codes, r := &attack.Codes{}, report{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, a := range attack.All() {
		if strings.Contains(","+names+",", ","+a.Name+",") && (a.Unless == nil || a.Unless(&t) == "") {
			all.Go(func() {
				if err := a.Run(ctx, &t, codes); err != nil {
					mu.Lock()
					defer mu.Unlock()
					r.Faults = append(r.Faults, a.Name+": "+err.Error())
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(endWithin): // what hangs ends with the process
	}
	mu.Lock()
	defer mu.Unlock()
	r.Got = codes.Counts()
	return json.NewEncoder(os.Stdout).Encode(r)
}
