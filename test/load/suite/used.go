package suite

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Postgres is the consumer whose processes may end meanwhile: connections whose share of a load is
// nearly nothing.
const Postgres = "postgres"

// Consumer of CPU: one process or several of a kind.
type Consumer struct {
	Name string
	PIDs []int
}

// Of is the consumer of some processes.
func Of(name string, ps ...*local.Process) Consumer {
	c := Consumer{Name: name}
	for _, p := range ps {
		c.PIDs = append(c.PIDs, p.PID())
	}
	return c
}

// Self is this program, which makes the load.
func Self(name string) Consumer { return Consumer{name, []int{os.Getpid()}} }

func (c Consumer) cpu() (sum time.Duration, err error) {
	for _, pid := range c.PIDs {
		n, err := procfs.CPU(pid)
		if err != nil && c.Name != Postgres {
			return 0, fmt.Errorf("%s: %w", c.Name, err)
		}
		sum += n
	}
	return sum, nil
}

// Usage is what everybody uses of the CPU from Using on.
type Usage struct {
	who   []Consumer
	began []time.Duration
	at    time.Time
}

// Using begins to look at consumers.
func Using(who ...Consumer) (_ *Usage, err error) {
	defer try.Catch(&err)
	u := &Usage{who: who, at: time.Now()}
	for _, c := range who {
		n := try.Get(c.cpu())
		u.began = append(u.began, n)
	}
	return u, nil
}

// UsingMesh begins to look at this program, the tiers of a mesh, and the suite's Postgres.
func (r *Run) UsingMesh(m *local.Mesh) (_ *Usage, err error) {
	defer try.Catch(&err)
	pids := try.Get(r.DB.PIDs())
	who := []Consumer{Self("generator"), Of("router", m.Router), Of("store", m.Store), {Postgres, pids}}
	if len(m.Edges) > 0 {
		who = append(who, Of("edge", m.Edges...), Of("nats", m.NATS))
	}
	return Using(who...)
}

// Spent is what each consumer has used since, in order.
func (u *Usage) Spent() (all []time.Duration, err error) {
	defer try.Catch(&err)
	for i, c := range u.who {
		n := try.Get(c.cpu())
		all = append(all, n-u.began[i])
	}
	return all, nil
}

// By is what each consumer used for one of n operations, in µs.
func (u *Usage) By(n int64) (map[string]float64, error) {
	all, err := u.Spent()
	by := map[string]float64{}
	for i, d := range all {
		by[u.who[i].Name] = d.Seconds() * 1e6 / float64(max(n, 1))
	}
	return by, err
}

// Each is the same for people, with the sum.
func (u *Usage) Each(n int64) (_ string, err error) {
	defer try.Catch(&err)
	by := try.Get(u.By(n))
	var said []string
	var sum float64
	for _, c := range u.who {
		said = append(said, fmt.Sprintf("%s %.2f", c.Name, by[c.Name]))
		sum += by[c.Name]
	}
	return fmt.Sprintf("CPU µs each: %s = %.2f", strings.Join(said, " + "), sum), nil
}

// Busy is how much of a core the first consumer took.
func (u *Usage) Busy() (float64, error) {
	n, err := u.who[0].cpu()
	return (n - u.began[0]).Seconds() / time.Since(u.at).Seconds(), err
}
