package claims

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict on a history.
type Verdict struct {
	Resources, Ops, Unknown int
	// Open are resources that were too hard to judge in the time given.
	Open []string
	// Breaches, one for each resource that behaved as it must not.
	Breaches []string
}

func (v *Verdict) String() string {
	return fmt.Sprintf("%d resources, %d operations (%d of unknown outcome), %d breaches, %d not judged", v.Resources, v.Ops, v.Unknown, len(v.Breaches), len(v.Open))
}

var seed = maphash.MakeSeed()

// model is the resource as porcupine has it: a set of states in which it may be.
func model(r Rules) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{(&state{}).sealed()} },
		Step: func(s, in, _ any) (next []any) {
			for _, n := range step(r, s.(*state), in.(*Op)) { //nolint:forcetypeassert // what Init and Step return
				next = append(next, n)
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(*state).key == b.(*state).key },    //nolint:forcetypeassert // as above
		Hash:  func(s any) uint64 { return maphash.String(seed, s.(*state).key) }, //nolint:forcetypeassert // as above
	}
	return m.ToModel()
}

// Judge looks at every resource, each for so long at most.
func Judge(h *History, rules func(resource string) Rules, each time.Duration) *Verdict {
	v := &Verdict{}
	v.Ops, v.Unknown = h.Count()
	resources := h.Resources()
	v.Resources = len(resources)
	var mu sync.Mutex
	var running sync.WaitGroup
	next := make(chan string)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for name := range next {
				result, why := judge(h.Of(name), rules(name), each)
				mu.Lock()
				switch result {
				case porcupine.Illegal:
					v.Breaches = append(v.Breaches, name+": "+why)
				case porcupine.Unknown:
					v.Open = append(v.Open, name)
				case porcupine.Ok:
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range resources {
		next <- name
	}
	close(next)
	running.Wait()
	slices.Sort(v.Breaches)
	return v
}

func judge(ops []*Op, r Rules, each time.Duration) (porcupine.CheckResult, string) {
	if late := overstayed(ops, r); late != "" {
		return porcupine.Illegal, late
	}
	m, history := model(r), operations(ops)
	result := porcupine.CheckOperationsTimeout(m, history, each)
	if result != porcupine.Illegal {
		return result, ""
	}
	_, info := porcupine.CheckOperationsVerbose(m, history, each)
	return result, explain(ops, info)
}

// operations as porcupine has them. What nobody knows of, and changes nothing that the model would
// hold against anybody, is left out.
func operations(ops []*Op) (all []porcupine.Operation) {
	for _, op := range ops {
		if op.Unknown() && (op.Kind == Check || op.Kind == Told) {
			continue
		}
		all = append(all, porcupine.Operation{Input: op, Call: op.Call, Return: op.Return})
	}
	return all
}

// around is how many operations of those that went before and came after are shown, few in the
// first line.
const (
	around = 25
	few    = 8
)

// explain shows the longest part of a history that could have happened, and what was called and did
// not fit.
func explain(ops []*Op, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	fits := map[*Op]bool{}
	for _, o := range longest {
		fits[o.Input.(*Op)] = true //nolint:forcetypeassert // put there by operations
	}
	var went, rest []string
	for _, o := range longest[max(0, len(longest)-around):] {
		went = append(went, fmt.Sprint(o.Input))
	}
	for _, op := range ops {
		if !fits[op] && len(rest) < around {
			rest = append(rest, op.String())
		}
	}
	var b strings.Builder
	// the first line says enough where there is no room for more
	fmt.Fprintf(&b, "%d of %d operations could have happened, the last of them %s, but then none of %s\n",
		len(longest), len(ops), strings.Join(went[max(0, len(went)-few):], ";"), strings.Join(rest[:min(few, len(rest))], ";"))
	fmt.Fprintf(&b, "    %s\nbut then none of:\n    %s\n", strings.Join(went, "\n    "), strings.Join(rest, "\n    "))
	return b.String()
}

// overstayed finds a hold that was renewed although its time was over, for it had not been renewed.
func overstayed(ops []*Op, r Rules) string {
	if r.TTL == 0 {
		return ""
	}
	// token → the latest end of its hold; Never: it may have been prolonged
	until := map[uint64]int64{}
	for _, op := range ops {
		if op.Unknown() && op.Kind == Renew {
			until[op.Token] = Never
		}
	}
	answered := slices.DeleteFunc(slices.Clone(ops), (*Op).Unknown)
	slices.SortStableFunc(answered, func(a, b *Op) int { return int(a.Return - b.Return) })
	for _, op := range answered {
		token := op.Answer.Token
		if token == 0 || op.Answer.NotHeld || until[token] == Never {
			continue
		}
		end, known := until[token]
		if known && op.Kind == Renew && op.Call > end+r.Late.Microseconds() {
			return fmt.Sprintf("renewed %d µs after its end: %s", op.Call-end, op)
		}
		if !known || op.Kind == Renew {
			until[token] = max(end, op.Return+r.TTL.Microseconds())
		}
	}
	return ""
}
