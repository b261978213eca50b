// Command bench measures the tiers, beside other servers and bare loops, all in one run each:
//
//	bench auth|edge|edge-guard|store|store-long|router|pool|compute|compute-long|claims|claims-long|million|upgrade|websocket [FLAGS]
//
// `make bench PART=edge` builds what a suite needs and runs it; docs/benchmarks.md says what the
// rows mean.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/pushmesh/pushmesh/test/load/claims"
	"github.com/pushmesh/pushmesh/test/load/compute"
	"github.com/pushmesh/pushmesh/test/load/edge"
	"github.com/pushmesh/pushmesh/test/load/guard"
	"github.com/pushmesh/pushmesh/test/load/million"
	"github.com/pushmesh/pushmesh/test/load/pool"
	"github.com/pushmesh/pushmesh/test/load/router"
	"github.com/pushmesh/pushmesh/test/load/store"
	"github.com/pushmesh/pushmesh/test/load/suite"
)

// suites by name, some with flags that others may follow.
var suites = map[string]struct {
	begin func(*suite.Run) *suite.Suite
	flags string
}{
	"auth":         {guard.NewAuth, ""},
	"edge":         {edge.New, ""},
	"edge-guard":   {guard.New, ""},
	"store":        {store.New, ""},
	"store-long":   {store.New, "-long -timeout 40m"},
	"router":       {router.New, ""},
	"pool":         {pool.New, ""},
	"compute":      {compute.New, ""},
	"compute-long": {compute.New, "-rounds 9 -span 2s -mix-rounds 5 -mix-span 20s -isolate-rounds 6 -timeout 25m"},
	"claims":       {claims.New, ""},
	"claims-long":  {claims.New, "-span 60s -waiting 90000 -timeout 30m"},
	"million":      {million.New, ""},
	"upgrade":      {guard.NewUpgrade, ""},
	"websocket":    {guard.NewWebSocket, ""},
}

// workers by kind.
var workers = []map[string]suite.Work{router.Workers, million.Workers, compute.Workers, pool.Workers}

func main() {
	// Children end with the thread that started them, which therefore is the one that lives as long
	// as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 4 && args[0] == suite.WorkerFlag {
		for _, some := range workers {
			if work := some[args[1]]; work != nil {
				return suite.Obey(ctx, work, args[2], args[3], os.Stdin, os.Stdout)
			}
		}
		return fmt.Errorf("no such worker: %q", args[1])
	}
	names := strings.Join(slices.Sorted(maps.Keys(suites)), "|")
	if len(args) == 0 {
		return fmt.Errorf("usage: bench %s [FLAGS]; -h behind a name lists its flags", names)
	}
	s, ok := suites[args[0]]
	if !ok {
		return fmt.Errorf("there is no suite %q, but %s", args[0], names)
	}
	return suite.Main(ctx, args[0], s.begin, append(strings.Fields(s.flags), args[1:]...))
}
