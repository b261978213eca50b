package storeclient

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// refreshEvery is the pace while nothing goes wrong.
	refreshEvery = time.Second
	// minPause between two rounds keeps a storm of refusals from becoming a storm of questions.
	minPause = 20 * time.Millisecond
)

// waits are how long stores may take to answer.
type waits struct {
	// ask bounds a question; grace bounds the round once a store has answered, so that a store that
	// hangs does not hide for long who took its shards. What it answers later only says that it is
	// there.
	ask, grace time.Duration
	// silent is when an owner counts as not reachable, and calls for its shards are refused at
	// once.
	silent time.Duration
}

var defaultWaits = waits{ask: 2 * time.Second, grace: 200 * time.Millisecond, silent: 3 * time.Second}

// answer of one store to Owners.
type answer struct {
	addr   string // asked
	mesh   meshid.Mesh
	ranges []*meshv1.OwnersResponse_Range
	err    error
}

func (c *Client) keepFresh(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.kick:
		}
		c.round(ctx)
		pause := time.NewTimer(minPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		timer.Reset(refreshEvery)
	}
}

// round asks every known store and takes the result.
func (c *Client) round(ctx context.Context) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	known := c.known()
	before := c.owners
	c.mu.Unlock()

	answers := c.believe(c.askAll(ctx, known))
	c.take(merge(before, answers))
	for _, done := range waiting {
		close(done)
	}
	wanted := map[string]bool{}
	c.mu.Lock()
	for addr := range c.known() {
		wanted[addr] = true
	}
	maps.DeleteFunc(c.foreign, func(addr string, _ error) bool { return !wanted[addr] })
	c.mu.Unlock()
	if err := c.dials.keepOnly(wanted); err != nil {
		c.cfg.Log.Debug("closing the connection to a store that is gone failed", "error", err)
	}
}

// known are the seeds and the owners. c.mu is held.
func (c *Client) known() map[string]bool {
	known := map[string]bool{}
	for _, addr := range c.cfg.Seeds {
		known[addr] = true
	}
	for _, addr := range c.owners {
		if addr != "" {
			known[addr] = true
		}
	}
	return known
}

func (c *Client) askAll(ctx context.Context, addrs map[string]bool) []answer {
	results := make(chan answer, len(addrs))
	for addr := range addrs {
		go func() { results <- c.ask(ctx, addr) }()
	}
	var (
		answers []answer
		grace   <-chan time.Time
	)
	for range addrs {
		select {
		case a := <-results:
			if a.err != nil {
				c.cfg.Log.Debug("asking a store for the owners of shards failed", "store", a.addr, "error", a.err)
				continue
			}
			answers = append(answers, a)
			if grace == nil {
				grace = time.After(c.waits.grace)
			}
		case <-grace:
			return answers
		}
	}
	return answers
}

func (c *Client) ask(ctx context.Context, addr string) answer {
	ctx, cancel := context.WithTimeout(ctx, c.waits.ask)
	defer cancel()
	stub, err := c.dials.to(addr)
	if err != nil {
		return answer{addr: addr, err: err}
	}
	resp, err := stub.Owners(ctx, &meshv1.OwnersRequest{})
	mesh := meshid.Mesh{Name: resp.GetMeshName(), ID: resp.GetMeshId()}
	if err == nil {
		err = c.note(addr, c.cfg.Mesh.Compare(mesh))
	}
	return answer{addr: addr, mesh: mesh, ranges: resp.GetRanges(), err: err}
}

// note takes down that a store answered, and what its answer has against it being believed.
func (c *Client) note(addr string, foreign error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if foreign == nil {
		if _, known := c.cfg.Mesh.Mesh(); known {
			delete(c.foreign, addr)
		}
		c.lastAnswer[addr] = time.Now()
		return nil
	}
	if was := c.foreign[addr]; was == nil || was.Error() != foreign.Error() {
		c.cfg.Log.Error("a store belongs to another mesh and is ignored", "store", addr, "error", foreign)
	}
	c.foreign[addr] = foreign
	return foreign
}

// believe leaves out what stores of other meshes say. The first answers tell which mesh this is;
// where they name several, none is believed.
func (c *Client) believe(answers []answer) []answer {
	if _, known := c.cfg.Mesh.Mesh(); !known && len(answers) > 0 {
		slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.addr, b.addr) })
		first := answers[0]
		for _, a := range answers[1:] {
			if a.mesh != first.mesh {
				_ = c.note(a.addr, fmt.Errorf("it belongs to %s, and store %s to %s: name stores of one mesh only", a.mesh, first.addr, first.mesh))
				return nil
			}
		}
		if err := c.note(first.addr, c.cfg.Mesh.Learn(first.mesh)); err != nil {
			return nil
		}
		c.cfg.Log.Info("learned the mesh from the stores", "mesh", first.mesh.Name, "id", first.mesh.ID)
	}
	return slices.DeleteFunc(answers, func(a answer) bool { return c.cfg.Mesh.Compare(a.mesh) != nil })
}

// take puts a new map in place.
func (c *Client) take(owners [topic.Shards]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owners == c.owners {
		return
	}
	c.owners = owners
	known, now := c.known(), time.Now()
	for addr := range c.lastAnswer {
		if !known[addr] {
			delete(c.lastAnswer, addr)
		}
	}
	for _, addr := range owners {
		if addr != "" && c.lastAnswer[addr].IsZero() {
			// known by hearsay: it has not been asked yet
			c.lastAnswer[addr] = now
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// merge decides who owns what. A store that says so of itself is believed before hearsay; of two
// that do, the newcomer is, since a takeover is when that happens. Hearsay counts only for a store
// that did not answer itself. Without any answer the map stays as it was.
func merge(before [topic.Shards]string, answers []answer) [topic.Shards]string {
	if len(answers) == 0 {
		return before
	}
	var own, hearsay [topic.Shards]string
	asked := map[string]bool{}
	for _, a := range answers {
		asked[a.addr] = true
	}
	for _, a := range answers {
		for _, r := range a.ranges {
			for s := r.GetFirst(); s <= r.GetLast() && s < topic.Shards; s++ {
				switch {
				case r.GetAddress() == a.addr:
					if own[s] == "" || own[s] == before[s] {
						own[s] = a.addr
					}
				case !asked[r.GetAddress()] && (hearsay[s] == "" || hearsay[s] == before[s]):
					hearsay[s] = r.GetAddress()
				}
			}
		}
	}
	for s := range own {
		if own[s] == "" {
			own[s] = hearsay[s]
		}
	}
	return own
}
