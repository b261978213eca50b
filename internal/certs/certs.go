// Package certs keeps the certificates of a server: it reads them from files, gives each client the
// one for the name that it asks for, and reads the files again when they change.
package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// Pair names the files of a certificate, with its chain, and of its key, in PEM.
type Pair struct{ Cert, Key string }

// Config of a Keeper.
type Config struct {
	// Pairs of files, at least one. The first is for clients that name no server, or one that no
	// certificate is for.
	Pairs []Pair
	// CA is a file of certificates that sign those of others, read again with the pairs; "": none.
	CA string
	// Revoked is a file of lists of certificates that those of CA have revoked, read again with the
	// pairs; "": none.
	Revoked string
	// Untrusted has connections that are held (Hold) end when who signed their certificate is not
	// in CA any more. Where it is set, or Revoked is, a change is taken once two looks have seen
	// it.
	Untrusted bool
	// Accept, if any, says what is wrong with the first certificate, or with it beside the CA's.
	Accept func(cert *tls.Certificate, ca *x509.CertPool) error
	// Every is how often the files are looked at.
	Every time.Duration
	Log   *slog.Logger
}

// Keeper is a lifecycle.Part. One goroutine looks at the files; anybody may Get.
type Keeper struct {
	cfg     Config
	now     func() time.Time
	current atomic.Pointer[set]
	seen    [sha256.Size]byte // of the files as they were when they were read last
	last    [sha256.Size]byte // of the files at the last look
	live    live
	ended   atomic.Uint64
	reloads atomic.Uint64
	failed  atomic.Uint64
	fault   atomic.Pointer[error] // of the files as they are now; nil: none
	group   *lifecycle.Group
}

// Open reads the files, which must be good.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, now: time.Now}
	files, sum, err := k.read()
	if err != nil {
		return nil, err
	}
	s, err := k.parse(files)
	if err != nil {
		return nil, err
	}
	k.seen, k.last = sum, sum
	k.current.Store(s)
	return k, nil
}

// settleEvery is how often files are looked at, at least, of which two looks must see the same: a
// change is taken within the 2 s that are promised.
const settleEvery = 750 * time.Millisecond

// settles reports whether a change counts only once two looks have seen it: half of a file would
// let in whom the rest of it revokes, or end the connections of whose CA is in the rest.
func (c *Config) settles() bool { return c.Revoked != "" || c.Untrusted }

// Start implements lifecycle.Part.
func (k *Keeper) Start(context.Context) error {
	k.group = lifecycle.NewGroup(context.Background())
	k.group.Go("certificates", func(ctx context.Context) {
		every := k.cfg.Every
		if k.cfg.settles() {
			every = min(every, settleEvery)
		}
		clock := time.NewTicker(every)
		defer clock.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-clock.C:
				k.look()
			}
		}
	})
	return nil
}

// Stop implements lifecycle.Part.
func (k *Keeper) Stop(ctx context.Context) error { return k.group.Stop(ctx) }

// look takes what the files hold now, where that is new and good; what is not good is told once,
// and the certificates stay. Connections end whose certificate does not count any more.
func (k *Keeper) look() {
	files, sum, err := k.read()
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error()))
	}
	again := sum == k.seen || k.cfg.settles() && sum != k.last
	if k.last = sum; again {
		return
	}
	var s *set
	if err == nil {
		s, err = k.parse(files)
	}
	if k.seen = sum; err != nil {
		k.failed.Add(1)
		k.fault.Store(&err)
		k.cfg.Log.Error("the new certificates can't be used: the old ones stay", "error", err)
		return
	}
	k.current.Store(s)
	k.fault.Store(nil)
	k.reloads.Add(1)
	k.cfg.Log.Info("certificates were read again", "names", s.names(), "expires", s.expires)
	k.settle()
}

// file is one pair's content.
type file struct {
	Pair
	cert, key []byte
}

// content is that of all files.
type content struct {
	pairs       []file
	ca, revoked []byte
}

// parse makes a set of what the files hold, which must be good.
func (k *Keeper) parse(c content) (*set, error) {
	s, err := parse(c.pairs, k.now())
	if err != nil {
		return nil, err
	}
	if k.cfg.CA != "" {
		cas, err := certificates(k.cfg.CA, c.ca)
		if err != nil {
			return nil, err
		}
		s.ca, s.known = x509.NewCertPool(), map[[sha256.Size]byte]struct{}{}
		for _, ca := range cas {
			s.ca.AddCert(ca)
			s.known[sha256.Sum256(ca.Raw)] = struct{}{}
		}
		one, other := sha256.Sum256(c.ca), sha256.Sum256(c.revoked)
		s.trusts = sha256.Sum256(append(one[:], other[:]...))
		if k.cfg.Revoked != "" {
			if s.revoked, err = parseLists(k.cfg.Revoked, c.revoked, cas); err != nil {
				return nil, err
			}
		}
	}
	if k.cfg.Accept == nil {
		return s, nil
	}
	if err := k.cfg.Accept(s.all[0], s.ca); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", k.cfg.Pairs[0].Cert, err)
	}
	return s, nil
}

// read reads all files, and says what they came to.
func (k *Keeper) read() (c content, sum [sha256.Size]byte, err error) {
	var errs []error
	all := sha256.New()
	add := func(b []byte) {
		one := sha256.Sum256(b)
		all.Write(one[:])
	}
	for _, p := range k.cfg.Pairs {
		cert, errCert := os.ReadFile(p.Cert)
		key, errKey := os.ReadFile(p.Key)
		errs = append(errs, errCert, errKey)
		c.pairs = append(c.pairs, file{p, cert, key})
		add(cert)
		add(key)
	}
	for _, also := range []struct {
		file string
		to   *[]byte
	}{{k.cfg.CA, &c.ca}, {k.cfg.Revoked, &c.revoked}} {
		if also.file != "" {
			var err error
			*also.to, err = os.ReadFile(also.file)
			errs = append(errs, err)
			add(*also.to)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, sum, fmt.Errorf("certificates: %w", err)
	}
	return c, [sha256.Size]byte(all.Sum(nil)), nil
}

// Get is for tls.Config.GetCertificate.
func (k *Keeper) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.current.Load().choose(hello), nil
}

// First is the first of the certificates.
func (k *Keeper) First() *tls.Certificate { return k.current.Load().all[0] }

// CA is what signs the certificates of others; nil: no file of them is set.
func (k *Keeper) CA() *x509.CertPool { return k.current.Load().ca }

// Check reports what an operator has to mend: files that changed and can't be used, a certificate
// that is served and has expired, or a list of revoked ones that has ended.
func (k *Keeper) Check() error {
	if err := k.fault.Load(); err != nil {
		return fmt.Errorf("the new certificates can't be used, the old ones stay: %w", *err)
	}
	if at := k.Expires(); k.now().After(at) {
		return fmt.Errorf("a certificate expired at %v", at)
	}
	return k.current.Load().revoked.stale(k.now())
}

// Expires is when the first of the certificates does.
func (k *Keeper) Expires() time.Time { return k.current.Load().expires }

// Reloads counts how often new certificates were taken, and how often they were not good.
func (k *Keeper) Reloads() (taken, failed uint64) { return k.reloads.Load(), k.failed.Load() }

// Ended counts the connections that were ended because of their certificate (Hold).
func (k *Keeper) Ended() uint64 { return k.ended.Load() }
