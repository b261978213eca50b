// Package filters judges messages by the content filters of subscriptions (Subscribe.where): once
// for each message and each distinct expression, whoever subscribes, and never on an event loop.
// What came out goes with the message as its Verdicts.
package filters

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Bounds of what an edge evaluates.
const (
	// maxPrograms are distinct expressions in use, maxTexts bytes of them together: a program of 4
	// KiB holds about 200 KiB.
	maxPrograms = 10_000
	maxTexts    = 4 << 20
	// maxCost of one evaluation; beyond it the filter is false.
	maxCost = 5000
	// perProgram is what is charged for each program besides its evaluation.
	perProgram = 50 * time.Nanosecond
	// overrun is how many budgets the evaluations of one message may really cost: estimates are for
	// texts and lists of usual sizes.
	overrun = 5
	// maxSets bounds the topics whose programs are remembered.
	maxSets = 4096
)

// Config of a registry; zero values mean the defaults given.
type Config struct {
	// Budget is what all filters of a topic may take for one message, as estimated: 200 µs.
	Budget time.Duration
	// Memory bounds the bytes of what is kept for content filters, as estimated: 512 MiB.
	Memory int
}

// Key names a subscription.
type Key struct {
	Conn exchange.Conn
	Sub  uint32
}

// program is a distinct expression in use.
type program struct {
	id   uint32
	text string
	*expr.Program
	time time.Duration // estimated
	uses int
}

// use is what a subscription has.
type use struct {
	filter string
	p      *program
}

// Registry is safe for concurrent use.
type Registry struct {
	cfg   Config
	stats Stats

	// changing is held by who adds or removes a filter, which may take long where there are very
	// many: nobody who judges messages waits for it. What mu guards changes under both, so that who
	// holds changing may read it.
	changing sync.Mutex

	mu       sync.RWMutex        // is not held for long
	programs map[string]*program // by text
	texts    int                 // bytes of them
	uses     map[Key]use
	filters  map[string]map[*program]int // how many subscriptions of a topic or filter have it
	wild     topic.Index[*program]       // of filters with wildcards
	last     uint32                      // number given
	sets     map[string]*set             // by topic

	times times // of the programs of each topic or filter; only for who holds changing

	wanted wanted
}

// Stats may be read at any time.
type Stats struct {
	// Programs and Subscriptions in use.
	Programs, Subscriptions atomic.Int64
	// Memory is about what is kept for content filters, in bytes.
	Memory atomic.Int64
	// Evaluations, of which Undefined had no value and Failed exceeded their cost or the message's:
	// false all the same. Refused filters.
	Evaluations, Undefined, Failed, Refused atomic.Uint64
}

// New makes an empty registry.
func New(cfg Config) *Registry {
	cfg.Budget, cfg.Memory = cmp.Or(cfg.Budget, 200*time.Microsecond), cmp.Or(cfg.Memory, 512<<20)
	return &Registry{
		cfg: cfg, programs: map[string]*program{}, uses: map[Key]use{}, filters: map[string]map[*program]int{},
		times: newTimes(cfg.Budget), sets: map[string]*set{}, wanted: wanted{exact: map[string]bool{}},
	}
}

// Stats of the registry.
func (r *Registry) Stats() *Stats { return &r.stats }

// Add has messages of filter's topics judged by an expression from now on, and returns its number.
// It takes milliseconds for long expressions. Errors are those of exchange.Filtered.
func (r *Registry) Add(key Key, filter, text string) (uint32, error) {
	id, err := r.add(key, filter, text)
	if err != nil {
		r.stats.Refused.Add(1)
	}
	return id, err
}

func (r *Registry) add(key Key, filter, text string) (uint32, error) {
	r.mu.RLock()
	p := r.programs[text]
	r.mu.RUnlock()
	if p == nil {
		compiled, err := compile(text)
		if err != nil {
			return 0, err
		}
		p = &program{text: text, Program: compiled, time: perProgram + compiled.EstimatedTime()}
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	if known := r.programs[text]; known != nil {
		p = known
	} else if len(r.programs) >= maxPrograms || r.texts+len(text) > maxTexts {
		return 0, overloaded("this edge is at its limit of content filters")
	}
	if need := r.needs(filter, p); r.stats.Memory.Load()+need > int64(r.cfg.Memory) {
		return 0, overloaded(fmt.Sprintf("the content filters of this edge take %d bytes, %d at most", r.stats.Memory.Load(), r.cfg.Memory))
	}
	if r.filters[filter][p] == 0 {
		if t := r.with(filter, p); t > r.cfg.Budget {
			return 0, overloaded(fmt.Sprintf("the content filters of these topics would take at least %v for a message here, %v at most", t, r.cfg.Budget))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use(key, filter, p)
	return p.id, nil
}

func overloaded(why string) error { return code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter, why) }

// retryAfter is told to who is refused: other filters may go.
const retryAfter = 5 * time.Second

// unknown are names of an Input that differ between subscribers, or with time, or that are for
// candidates.
var unknown = []string{"profile", "age", "now", "id"}

func compile(text string) (*expr.Program, error) {
	p, err := expr.Compile(text, expr.Filter, expr.Limits{Cost: maxCost})
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "where: "+err.Error())
	}
	for _, name := range unknown {
		if p.Uses(name) {
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "where: a content filter can't use "+name)
		}
	}
	return p, nil
}

// with is the most that programs take for one message of a topic that filter matches, p among them;
// where that is more than the budget, at least some of it.
//
// A topic's programs are those of its own filter and of wildcards that match it. Whichever of these
// came last saw all the others here, so that no topic is ever above the budget.
func (r *Registry) with(filter string, p *program) time.Duration {
	if !topic.IsFilter(filter) {
		own, seen := r.filters[filter], map[*program]bool{p: true}
		t := p.time + r.times.of[filter]
		for _, other := range r.wild.Match(nil, filter) {
			if own[other] == 0 && !seen[other] {
				seen[other] = true
				t += other.time
			}
		}
		return t
	}
	shared, seen := p.time, map[*program]bool{p: true}
	if shared > r.cfg.Budget {
		return shared
	}
	r.wild.Meet(filter, func(other *program) bool {
		if !seen[other] {
			seen[other] = true
			shared += other.time
		}
		return shared <= r.cfg.Budget
	})
	if shared > r.cfg.Budget {
		return shared
	}
	most := time.Duration(0)
	for other := range r.times.above(r.cfg.Budget - shared) {
		if topic.Match(filter, other) {
			own := time.Duration(0)
			for p := range r.filters[other] {
				if !seen[p] {
					own += p.time
				}
			}
			if most = max(most, own); shared+most > r.cfg.Budget {
				break
			}
		}
	}
	return shared + most
}

func (r *Registry) use(key Key, filter string, p *program) {
	r.stats.Memory.Add(r.needs(filter, p))
	if p.uses == 0 {
		r.last++
		p.id = r.last
		r.programs[p.text] = p
		r.texts += len(p.text)
		r.stats.Programs.Add(1)
	}
	p.uses++
	r.uses[key] = use{filter, p}
	r.stats.Subscriptions.Add(1)
	if r.filters[filter] == nil {
		r.filters[filter] = map[*program]int{}
		r.wanted.add(filter)
	}
	if r.filters[filter][p]++; r.filters[filter][p] > 1 {
		return
	}
	r.times.add(filter, p.time)
	if topic.IsFilter(filter) {
		r.wild.Add(filter, p)
	}
	r.changed(filter)
}

// Remove ends an Add; of a subscription that has none it does nothing.
func (r *Registry) Remove(key Key) {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.uses[key]
	if !ok {
		return
	}
	delete(r.uses, key)
	r.stats.Subscriptions.Add(-1)
	if u.p.uses--; u.p.uses == 0 {
		delete(r.programs, u.p.text)
		r.texts -= len(u.p.text)
		r.stats.Programs.Add(-1)
	}
	if r.filters[u.filter][u.p]--; r.filters[u.filter][u.p] == 0 {
		r.drop(u)
	}
	r.stats.Memory.Add(-r.needs(u.filter, u.p)) // as much as it would be if it came again
}

// drop ends a program of a topic or filter.
func (r *Registry) drop(u use) {
	delete(r.filters[u.filter], u.p)
	r.times.add(u.filter, -u.p.time)
	if topic.IsFilter(u.filter) {
		r.wild.Remove(u.filter, u.p)
	}
	if len(r.filters[u.filter]) == 0 {
		delete(r.filters, u.filter)
		r.wanted.remove(u.filter)
	}
	r.changed(u.filter)
}

// changed forgets the sets of topics that filter matches.
func (r *Registry) changed(filter string) {
	if topic.IsFilter(filter) {
		clear(r.sets)
		return
	}
	delete(r.sets, filter)
}
