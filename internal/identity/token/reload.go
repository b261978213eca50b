package token

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// readEvery is how often the issuers file is looked at. A change is taken once two looks have seen
// the same, which is within 2 s.
const readEvery = 750 * time.Millisecond

// reloading is the issuers file of a Verifier, which is read again when it changes.
type reloading struct {
	path   string            // "": the issuers are as they were given
	seen   [sha256.Size]byte // of the file as it was taken last, or of why it could not be; look's
	last   [sha256.Size]byte // the same of the last look
	taken  atomic.Uint64
	failed atomic.Uint64
	fault  atomic.Pointer[error] // of the file as it is now; nil: none
}

// Open makes a Verifier of an issuers file, which must be good, and is read again when it changes:
// issuers that are as before keep their keys, and tokens of those that are gone are refused. A file
// with a fault changes nothing.
func Open(path string, o Options) (*Verifier, error) {
	issuers, sum, err := readIssuers(path)
	if err != nil {
		return nil, err
	}
	v := New(issuers, o)
	v.file.path, v.file.seen, v.file.last = path, sum, sum
	if o.Registry != nil {
		o.Registry.MustRegister(v.file.counter(o.Tier, "taken", &v.file.taken), v.file.counter(o.Tier, "failed", &v.file.failed))
	}
	return v, nil
}

func (*reloading) counter(tier, result string, of *atomic.Uint64) prometheus.Collector {
	prefix := "pushmesh_" + tier + "_"
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: prefix + "issuers_reloads_total", Help: "Changes of the issuers file: taken, or failed (the old one stays).",
		ConstLabels: prometheus.Labels{"result": result},
	}, func() float64 { return float64(of.Load()) })
}

// readIssuers is ReadIssuers, and what the file, or the error, came to.
func readIssuers(path string) ([]Issuer, [sha256.Size]byte, error) {
	data, err := ReadFile(path, maxFile)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), err
	}
	all, err := issuersOf(path, data)
	return all, sha256.Sum256(data), err
}

// watch reads the file again until ctx ends.
func (v *Verifier) watch(ctx context.Context) {
	lifecycle.Every(ctx, readEvery, func(time.Time) { v.look() })
}

// look takes what the file says now, where that is new and good; what is not good is told once.
func (v *Verifier) look() {
	f := &v.file
	issuers, sum, err := readIssuers(f.path)
	again := sum == f.seen || sum != f.last
	if f.last = sum; again {
		return
	}
	if f.seen = sum; err != nil {
		f.failed.Add(1)
		f.fault.Store(&err)
		v.log.Error("the new issuers file can't be used: the old one stays", "error", err)
		return
	}
	v.replace(issuers)
	f.fault.Store(nil)
	f.taken.Add(1)
	v.log.Info("the issuers file was read again", "issuers", len(issuers))
}

// replace makes these the issuers, in the goroutine of the file.
func (v *Verifier) replace(issuers []Issuer) {
	before := *v.issuers.Load()
	now := make(map[string]*keyring, len(issuers))
	for _, is := range issuers {
		old := before[is.URL]
		if old != nil && reflect.DeepEqual(*old.issuer, is) {
			now[is.URL] = old
			continue
		}
		r := v.keyring(is)
		if old != nil && old.issuer.sameKeys(&is) {
			r.current.Store(old.current.Load()) // until its first fetch
		}
		now[is.URL] = r
		v.group.Go("issuer "+is.Name, r.run)
	}
	v.issuers.Store(&now)
	for url, old := range before {
		if now[url] != old {
			old.end()
		}
	}
}

// sameKeys reports whether the keys of two issuers are found and read in the same way.
func (is *Issuer) sameKeys(other *Issuer) bool {
	where := func(is *Issuer) []any {
		return []any{is.URL, is.KeysFile, is.JWKSURL, is.Discovery, is.SecretFile, is.Algorithms, is.AllowInsecure}
	}
	return reflect.DeepEqual(where(is), where(other))
}

// Issuers are those of now, in no order.
func (v *Verifier) Issuers() (all []Issuer) {
	for _, r := range *v.issuers.Load() {
		all = append(all, *r.issuer)
	}
	return all
}

// Check reports an issuers file that can't be used.
func (v *Verifier) Check() error {
	if err := v.file.fault.Load(); err != nil {
		return fmt.Errorf("the new issuers file can't be used, the old one stays: %w", *err)
	}
	return nil
}
