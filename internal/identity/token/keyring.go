package token

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// mostWaiting callers wait for a fetch of one issuer's keys.
	mostWaiting = 256
	// mostMissed tokens whose key is missing are remembered, for each issuer.
	mostMissed = 8192
	// watchEvery is how often a file of keys is looked at.
	watchEvery = time.Second
	// tellEvery is how often the log tells that fetches fail.
	tellEvery = time.Minute
)

// keyring has the keys of an issuer, and fetches them in one goroutine, its run: so there is one
// fetch at a time, and from the beginning of one to that of the next it is a cooldown at least.
type keyring struct {
	issuer *Issuer
	fetch  func(context.Context) (*keySet, error)
	log    *slog.Logger
	// nil: none was fetched yet; the last one is kept while fetches fail
	current atomic.Pointer[fetched]
	waiting atomic.Int32
	kick    chan struct{} // a fetch is wanted
	file    string        // where the keys are; "": at a URL
	seen    os.FileInfo   // of the file, when it was read last; nil: it could not be looked at
	// over ends with end: the issuer is none any more, and none of its keys is used
	over context.Context
	end  context.CancelFunc

	mu sync.Mutex
	// closed when the fetch ends that is wanted or under way; nil: there is none
	ended   chan struct{}
	stopped bool      // no fetch begins any more
	began   time.Time // the last fetch
	// tokens whose key was not there, and since when
	missed map[tokenHash]time.Time
}

// fetched is a set of keys, when its fetch began, and the file that it was in then.
type fetched struct {
	set   *keySet
	began time.Time
	file  os.FileInfo
}

// tokenHash tells tokens apart. What is remembered of a missing key is remembered by token, not by
// the id of the key: those who make up tokens may guess the id that comes next.
type tokenHash [sha256.Size]byte

func newKeyring(is *Issuer, fetch func(context.Context) (*keySet, error), log *slog.Logger) *keyring {
	// the first fetch begins with run, and whoever comes before it ends waits for it
	r := &keyring{
		issuer: is, fetch: fetch, log: log, kick: make(chan struct{}, 1), file: is.KeysFile + is.SecretFile,
		ended: make(chan struct{}), missed: map[tokenHash]time.Time{},
	}
	r.over, r.end = context.WithCancel(context.Background())
	return r
}

// run fetches keys until ctx or over ends: at once, when they are wanted, each refresh, and when
// their file was changed.
func (r *keyring) run(ctx context.Context) {
	defer r.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	failures := 0
	var told time.Time // the last line in the log that it fails
	for ctx.Err() == nil {
		err := r.fetchOnce(ctx)
		pause := r.issuer.Refresh
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(r.issuer.Cooldown<<min(failures, 10), r.issuer.Refresh)
			failures++
			if now := time.Now(); failures == 1 || now.Sub(told) >= tellEvery {
				told = now
				r.log.Warn("the keys of an issuer of tokens could not be fetched: the last ones are used", "issuer", r.issuer.Name,
					"has_keys", r.current.Load() != nil, "failures", failures, "error", err)
			}
		case failures > 0:
			r.log.Info("the keys of an issuer of tokens can be fetched again", "issuer", r.issuer.Name, "failures", failures)
			failures = 0
		}
		r.pause(ctx, pause)
	}
}

// stop lets those go who wait for a fetch; none begins any more.
func (r *keyring) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
}

// pause waits until the next fetch: so long at most, and a cooldown at least.
func (r *keyring) pause(ctx context.Context, most time.Duration) {
	r.mu.Lock()
	earliest, due := r.began.Add(r.issuer.Cooldown), r.began.Add(most)
	r.mu.Unlock()
	wait(ctx, earliest, nil)
	for now := time.Now(); now.Before(due) && ctx.Err() == nil; now = time.Now() {
		until := due
		if look := now.Add(watchEvery); r.file != "" && look.Before(due) {
			until = look
		}
		if wait(ctx, until, r.kick) || r.file != "" && changed(r.file, r.seen) {
			return
		}
	}
}

// wait returns true for a kick, false at a time or when ctx ends.
func wait(ctx context.Context, until time.Time, kick <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-kick:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// changed reports whether there is another file at path than the one that was seen; nil: it could
// not be looked at.
func changed(path string, seen os.FileInfo) bool {
	is := look(path)
	if is == nil || seen == nil {
		return is != seen
	}
	return !os.SameFile(is, seen) || is.Size() != seen.Size() || !is.ModTime().Equal(seen.ModTime())
}

// asInFile reports whether keys are those of their file now: to read it again would bring nothing.
func (r *keyring) asInFile(have *fetched) bool {
	return r.file != "" && have != nil && have.file != nil && !changed(r.file, have.file)
}

func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func (r *keyring) fetchOnce(ctx context.Context) error {
	r.mu.Lock()
	began := time.Now()
	r.began = began
	if r.ended == nil {
		r.ended = make(chan struct{})
	}
	select { // what was wanted until now is this fetch
	case <-r.kick:
	default:
	}
	r.mu.Unlock()
	if r.file != "" { // before it is read: what is written meanwhile is a change
		r.seen = look(r.file)
	}
	set, err := r.fetch(ctx)
	if err == nil {
		r.current.Store(&fetched{set: set, began: began, file: r.seen})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.ended)
	r.ended = nil
	return err
}

// keys returns the keys that may be used now; nil where there are none, or none that are fresh
// enough.
func (r *keyring) keys(now time.Time) *keySet { return r.usable(r.current.Load(), now) }

// usable is keys of what was fetched.
func (r *keyring) usable(have *fetched, now time.Time) *keySet {
	if most := r.issuer.MaxStale; have == nil || r.over.Err() != nil || most > 0 && now.Sub(have.began) > most {
		return nil
	}
	return have.set
}

// want asks for a fetch because a key is missing. It returns the end of one that is under way or
// begins now, or nil: the last one began less than a cooldown ago. Then one begins after that,
// unless the keyring was stopped.
func (r *keyring) want() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil || r.stopped {
		return r.ended
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
	if time.Since(r.began) >= r.issuer.Cooldown {
		r.ended = make(chan struct{})
		return r.ended
	}
	return nil
}

// await waits for a fetch under way or due, until ctx ends, for one fetch's time at most, and not
// among too many; false: there is nothing to wait for.
func (r *keyring) await(ctx context.Context) bool {
	if r.waiting.Add(1) > mostWaiting {
		r.waiting.Add(-1)
		r.want()
		return false
	}
	defer r.waiting.Add(-1)
	ended := r.want()
	if ended == nil {
		return false
	}
	timer := time.NewTimer(fetchTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// miss remembers since when the key of a token is missing. Where too many are remembered, one of
// them is forgotten, whichever: its token is told once more to come again.
func (r *keyring) miss(token tokenHash, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.missed[token]; known {
		return
	}
	if len(r.missed) >= mostMissed {
		for one := range r.missed {
			delete(r.missed, one)
			break
		}
	}
	r.missed[token] = now
}

// refuse says why no key of those that were tried has signed a token. That holds for good only
// where one can't be new, or have been changed under its id, or under none.
func (r *keyring) refuse(have *fetched, token tokenHash, p *parsed, now time.Time) *code.Error {
	latest := r.asInFile(have)
	r.mu.Lock()
	defer r.mu.Unlock()
	again := time.Second
	if r.ended == nil { // after the next fetch, not after the one under way
		again += max(time.Until(r.began.Add(r.issuer.Cooldown)), 0)
	}
	if r.usable(have, now) == nil {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, again, "the keys of issuer "+r.issuer.Name+" can't be had now")
	}
	why := "no key of issuer " + r.issuer.Name + " is the one that signed the token (alg, kid)"
	if len(have.set.find(p.alg, p.keyID)) > 0 {
		why = "the token's signature is not of a key of issuer " + r.issuer.Name
	}
	if latest || r.older(token, p, have.began) {
		return bad("%s: get a new token", why)
	}
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, again, why+": its keys are fetched again")
}

// older reports whether a token was there when a fetch of keys began: it was shown before, or says
// that it was issued before. r.mu is held.
func (r *keyring) older(token tokenHash, p *parsed, began time.Time) bool {
	if since, known := r.missed[token]; known && !began.Before(since) {
		return true
	}
	issued, there, err := instant(p.claims, "iat")
	return there && err == nil && !began.Before(issued.Add(r.issuer.Leeway))
}
