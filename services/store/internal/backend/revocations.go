package backend

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxRevocations is how many there may be, those that were restored and whose time is not over
// among them.
const MaxRevocations = 100_000

// Revocations of users and tokens, and the version of the last change, which is never 0. Each names
// a user, or an issuer and a token id; the others are empty.
type Revocations interface {
	// Revoke keeps a revocation, with now as the time when it was made, and answers with what is
	// kept. One of the same that is there already is replaced, and never ends sooner than that one.
	// Those whose time is over are deleted. A *code.Error OVERLOADED beyond MaxRevocations.
	Revoke(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (*pushmeshv1.Revocation, error)
	// Restore marks one as restored, which is a change; ErrNotFound where there is none, or it was
	// restored before. It answers with the version.
	Restore(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (version uint64, err error)
	// ListRevocations whose time is not over and that have changed since version have, in the order
	// of their versions; limit is at least 1.
	ListRevocations(ctx context.Context, have uint64, limit int, now uint64) (RevocationPage, error)
	// ExpireRevocations deletes up to limit whose time is over, and says how many. That is no
	// change: who has them knows when they end.
	ExpireRevocations(ctx context.Context, now uint64, limit int) (deleted int, err error)
}

// RevocationPage is an answer of ListRevocations.
type RevocationPage struct {
	// Version up to which the caller has all changes with this page.
	Version uint64
	// More: there are others. Anew: the caller's version never was in this database, and the page
	// is the first one.
	More, Anew bool
	All        []KeptRevocation
}

// KeptRevocation is one as it is kept.
type KeptRevocation struct {
	*pushmeshv1.Revocation
	Restored bool
}

// PageOfRevocations makes a page of what was read: one more than limit where there are so many, and
// the version as it was before that.
func PageOfRevocations(version uint64, anew bool, all []KeptRevocation, limit int) RevocationPage {
	p := RevocationPage{Version: version, Anew: anew, All: all}
	if p.More = len(all) > limit; p.More {
		p.All = all[:limit]
	}
	if n := len(p.All); n > 0 && (p.More || p.All[n-1].Version > version) {
		p.Version = p.All[n-1].Version
	}
	return p
}

// RoomForRevocation is a *code.Error where there are too many for one more.
func RoomForRevocation(n int) error {
	if n < MaxRevocations {
		return nil
	}
	return code.New(wirev1.Code_CODE_OVERLOADED, fmt.Sprintf(
		"there are %d revocations, and no more can be kept until some end (those that were restored count until then): to turn very many away, have the issuer sign with another key", MaxRevocations))
}
