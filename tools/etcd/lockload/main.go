// Command lockload loads an etcd with locks, as test/load/claims does a mesh with claims:
// concurrency.Mutex, a session for each owner. It says "ready", carries out the orders on its
// standard input, and answers each with a line of JSON.
//
//	lockload ADDRESS
//	pairs OWNERS CONNECTIONS SECONDS    each owner locks and unlocks its own keys, one pair after the other
//	hot OWNERS TIMES                    one key is handed over from owner to owner
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: lockload ADDRESS, orders on standard input")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "lockload:", err)
		os.Exit(1)
	}
}

// answer to an order: what was done in how long, and quantiles of what each took, in ms.
type answer struct {
	Done    int     `json:"done"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

func run(ctx context.Context, addr string) error {
	fmt.Println(`"ready"`)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var owners, conns, n int
		var took []time.Duration
		var span time.Duration
		var err error
		if k, _ := fmt.Sscanf(in.Text(), "pairs %d %d %d", &owners, &conns, &n); k == 3 {
			took, span, err = pairs(ctx, addr, owners, conns, time.Duration(n)*time.Second)
		} else if k, _ := fmt.Sscanf(in.Text(), "hot %d %d", &owners, &n); k == 2 {
			took, span, err = hot(ctx, addr, owners, n)
		} else {
			err = fmt.Errorf("unknown order %q", in.Text())
		}
		if err != nil {
			return err
		}
		slices.Sort(took)
		at := func(q float64) float64 {
			return float64(took[min(len(took)-1, int(float64(len(took))*q))].Microseconds()) / 1000
		}
		if len(took) == 0 {
			return fmt.Errorf("%s: nothing was done", in.Text())
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer{len(took), span.Seconds(), at(0.5), at(0.99), at(1)}); err != nil {
			return err
		}
	}
	return in.Err()
}

// sessions of owners, over some connections.
func sessions(ctx context.Context, addr string, owners, conns int) (all []*concurrency.Session, end func(), err error) {
	var clients []*clientv3.Client
	end = func() {
		for _, s := range all {
			_ = s.Close()
		}
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Context: ctx})
		if err != nil {
			return nil, end, err
		}
		clients = append(clients, c)
	}
	for i := range owners {
		s, err := concurrency.NewSession(clients[i%conns], concurrency.WithTTL(60))
		if err != nil {
			return nil, end, err
		}
		all = append(all, s)
	}
	return all, end, nil
}

func pairs(ctx context.Context, addr string, owners, conns int, span time.Duration) (took []time.Duration, ran time.Duration, err error) {
	all, end, err := sessions(ctx, addr, owners, conns)
	defer end()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	var mu sync.Mutex
	var running sync.WaitGroup
	for i, s := range all {
		running.Go(func() {
			var mine []time.Duration
			var failed error
			for n := 0; failed == nil && time.Since(began) < span; n++ {
				at := time.Now()
				m := concurrency.NewMutex(s, fmt.Sprintf("/lock/%d-%d", i, n%64))
				if failed = m.Lock(ctx); failed == nil {
					failed = m.Unlock(ctx)
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if failed != nil {
				err = failed
			}
		})
	}
	running.Wait()
	return took, time.Since(began), err
}

// hot has each owner lock the key again as soon as it has unlocked it; a hand-over is from the call
// that unlocks to the return of the next one's Lock.
func hot(ctx context.Context, addr string, owners, times int) (took []time.Duration, ran time.Duration, err error) {
	all, end, err := sessions(ctx, addr, owners, min(owners, 4))
	defer end()
	if err != nil {
		return nil, 0, err
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	began := time.Now()
	var mu sync.Mutex // of took, released and err
	var released time.Time
	var running sync.WaitGroup
	for _, s := range all {
		running.Go(func() {
			for ctx.Err() == nil {
				m := concurrency.NewMutex(s, "/lock/hot")
				failed := m.Lock(ctx)
				at := time.Now()
				mu.Lock()
				if failed == nil && !released.IsZero() && len(took) < times {
					took = append(took, at.Sub(released))
				}
				// The others need a moment to be in line again.
				enough := len(took) >= times
				mu.Unlock()
				if failed == nil && !enough {
					select {
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
					mu.Lock()
					released = time.Now()
					mu.Unlock()
					failed = m.Unlock(ctx)
				}
				mu.Lock()
				if failed != nil && ctx.Err() == nil {
					err = failed
				}
				if failed != nil || enough {
					over()
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return took, time.Since(began), err
}
