// Package newest has a process keep up with something that the stores have a version of, such as
// the namespaces: a store is asked at once where a notice or a beat says that there is a newer
// version, seldom while beats say that there is none, and often while nobody says anything.
package newest

import (
	"context"
	"sync/atomic"
	"time"
)

// refreshEvery is how often the store is asked while the beats of stores tell the version.
const refreshEvery = 5 * time.Second

// PollEvery is how often it is asked without beats: it bounds how long a change stays unseen
// without NATS.
const PollEvery = 500 * time.Millisecond

// beatsWithin is how old the last beat may be; they come every 500 ms.
const beatsWithin = 1500 * time.Millisecond

// Until something is known, and while it is known to be out of date, the time between two questions
// grows from the first to the second.
const (
	retryFirst = 10 * time.Millisecond
	retryEvery = 250 * time.Millisecond
)

// StaleAfter is how long a newer version may exist without this process having it, before the known
// one is too old to be used.
const StaleAfter = 5 * time.Second

// Pace says when to ask. Its methods are safe for concurrent use, but for Run and Stale, which are
// for one goroutine.
type Pace struct {
	have      func() (version uint64, known bool)
	connected func() bool
	kick      chan struct{}
	lastBeat  atomic.Int64 // when the last beat with a version came, Unix time in nanoseconds
	// named is the highest version that was named since the database answered last.
	named atomic.Uint64
	// staleSince is when named rose above what this process has; zero: it is not above.
	staleSince time.Time
}

// New makes a pace. have is the version that this process has, and whether it has any; connected
// reports whether beats can come, and is nil where they never do.
func New(have func() (version uint64, known bool), connected func() bool) *Pace {
	if connected == nil {
		connected = func() bool { return false }
	}
	return &Pace{have: have, connected: connected, kick: make(chan struct{}, 1)}
}

// Refresh has the store asked soon.
func (p *Pace) Refresh() {
	select {
	case p.kick <- struct{}{}:
	default: // one is wanted already
	}
}

// Wanted reports whether it is to be asked soon because somebody has said so.
func (p *Pace) Wanted() bool { return len(p.kick) > 0 }

// Beat notes the version that a store's beat names, which makes up for a lost notice of a change.
// 0: the store names none.
func (p *Pace) Beat(version uint64) {
	if version == 0 {
		return
	}
	p.lastBeat.Store(time.Now().UnixNano())
	p.Note(version)
}

// Note notes that a version exists, and has it asked for if this process has an older one.
func (p *Pace) Note(version uint64) {
	if have, _ := p.have(); version <= have {
		return
	}
	for named := p.named.Load(); version > named && !p.named.CompareAndSwap(named, version); named = p.named.Load() {
	}
	p.Refresh()
}

// Named is the highest version that was named since the database answered last.
func (p *Pace) Named() uint64 { return p.named.Load() }

// Answered notes that the database has answered a question that was asked when named was the
// highest. Its answer applies even if a beat had a higher version: the database was restored since
// then, or the beat was from another mesh.
func (p *Pace) Answered(named uint64) { p.named.CompareAndSwap(named, 0) }

// Current reports whether something is known, and nothing newer was named.
func (p *Pace) Current() bool {
	version, known := p.have()
	return known && version >= p.named.Load()
}

// Stale reports whether what is known has been out of date for StaleAfter.
func (p *Pace) Stale(now time.Time) bool {
	_, known := p.have()
	switch {
	case !known || p.Current():
		p.staleSince = time.Time{}
	case p.staleSince.IsZero():
		p.staleSince = now
	default:
		return now.Sub(p.staleSince) >= StaleAfter
	}
	return false
}

// Run calls ask whenever it is time to, until ctx ends.
func (p *Pace) Run(ctx context.Context, ask func(ctx context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked time.Time
	retry := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			if !p.due(now, asked) {
				timer.Reset(PollEvery)
				continue
			}
		case <-p.kick:
		}
		asked = time.Now()
		ask(ctx)
		if p.Current() {
			timer.Reset(PollEvery)
			retry = retryFirst
		} else {
			timer.Reset(retry)
			retry = min(2*retry, retryEvery)
		}
	}
}

// due reports whether the store is asked again without a sign of a change: seldom while beats
// arrive, which would be such a sign.
func (p *Pace) due(now, asked time.Time) bool {
	silent := !p.connected() || now.Sub(time.Unix(0, p.lastBeat.Load())) > beatsWithin
	return silent || !p.Current() || now.Sub(asked) >= refreshEvery
}
