package principals

import "github.com/pushmesh/pushmesh/internal/policy"

// NamespacesChanged ends subscriptions of clients that a namespace lets no client have any more,
// some slots at a time. One that is under way goes on with the newest rules, and begins again for
// what it has passed.
func (t *Table) NamespacesChanged() {
	if t.cfg.Namespaces == nil || t.barring != nil || t.cfg.Namespaces().Barred() == 0 {
		return
	}
	t.barring = &pass{
		current: func() any { return t.cfg.Namespaces() },
		idle:    func() bool { return t.cfg.Namespaces().Barred() == 0 },
		begin: func(slot uint32) bool {
			_, _, backend, _ := t.delivery.Client(slot)
			return !backend
		},
		over: func() { t.barring = nil },
	}
	t.barring.start(t, func(end ender) { t.endBarred(t.cfg.Namespaces(), end) })
}

// endBarred ends what a namespace bars.
func (t *Table) endBarred(table *policy.Table, end ender) {
	t.cost.Add(1 + table.Barred())
	if end(func(_ uint32, filter, _ string) string {
		if why := table.Bars(filter); why != nil {
			return why.Message
		}
		return ""
	}) {
		t.stats.Barred++
	}
}
