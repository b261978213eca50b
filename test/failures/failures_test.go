package failures

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// Faults are played one after the other while durable and ephemeral messages are published and
// subscribed to: nothing durable is lost, doubled or out of order. PUSHMESH_FAILURES is how many
// times all of them are played, for the table, PUSHMESH_FAILURES_ONLY names some; without them a
// few are, once.
func TestFaultsLoseNothing(t *testing.T) {
	times, err := strconv.Atoi(cmp.Or(os.Getenv("PUSHMESH_FAILURES"), "0"))
	if err != nil {
		t.Fatal("PUSHMESH_FAILURES: ", err)
	}
	options := procmesh.Options{NATSServers: 3, Links: true, Edges: 4, Routers: 2}
	streams := 4
	if times > 0 {
		options.Stores, options.Routers, streams = 2, 3, 8
	}
	only, err := regexp.Compile(strings.ReplaceAll(os.Getenv("PUSHMESH_FAILURES_ONLY"), ",", "|"))
	if err != nil {
		t.Fatal("PUSHMESH_FAILURES_ONLY: ", err)
	}
	runs := map[string][]cost{}
	var names []string
	for n := range max(times, 1) {
		t.Run(fmt.Sprint("run ", n+1), func(t *testing.T) {
			o := options
			if times > 0 {
				o.DB = pgtest.URL(t)
			}
			w := start(t, procmesh.Start(t, o), streams)
			for _, f := range faults {
				hold := f.hold
				switch {
				case !only.MatchString(f.name), times == 0 && !f.quick:
					continue
				case times == 0:
					hold = 0
				}
				c := f.play(t, w, hold)
				t.Logf("%+v", c)
				if runs[f.name] == nil {
					names = append(names, f.name)
				}
				runs[f.name] = append(runs[f.name], c)
			}
			w.end(t)
			w.judge(t)
		})
	}
	print(os.Stdout, names, runs)
	if path := os.Getenv("PUSHMESH_FAILURES_JSON"); path != "" {
		if err := table.WriteJSON(path, rows(names, runs)); err != nil {
			t.Fatal(err)
		}
	}
}
