package storeclient

import (
	"context"
	"time"

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
	// hangs does not hide for long who took its shards. What it answers later only says that it is there.
	ask, grace time.Duration
	// silent is when an owner counts as not reachable, and calls for its shards are refused at once.
	silent time.Duration
}

var defaultWaits = waits{ask: 2 * time.Second, grace: 200 * time.Millisecond, silent: 3 * time.Second}

// answer of one store to Owners.
type answer struct {
	addr   string // asked
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

	answers := c.askAll(ctx, known)
	c.take(merge(before, answers))
	for _, done := range waiting {
		close(done)
	}
	wanted := map[string]bool{}
	c.mu.RLock()
	for addr := range c.known() {
		wanted[addr] = true
	}
	c.mu.RUnlock()
	if err := c.dials.keepOnly(wanted); err != nil {
		c.cfg.Log.Debug("close connection to a store that is gone", "error", err)
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
				c.cfg.Log.Debug("store does not say who owns what", "store", a.addr, "error", a.err)
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
	if err == nil {
		c.mu.Lock()
		c.heard[addr] = time.Now()
		c.mu.Unlock()
	}
	return answer{addr: addr, ranges: resp.GetRanges(), err: err}
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
	for addr := range c.heard {
		if !known[addr] {
			delete(c.heard, addr)
		}
	}
	for _, addr := range owners {
		if addr != "" && c.heard[addr].IsZero() { // known by hearsay: it has not been asked yet
			c.heard[addr] = now
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// merge decides who owns what. A store that says so of itself is believed before hearsay; of two that do, the newcomer is,
// since a takeover is when that happens. Hearsay counts only for a store that did not answer itself. Without any
// answer the map stays as it was.
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
