package backend

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Sessions are owned by (user, name). A detached session whose time is over counts as absent,
// deleted or not.
type Sessions interface {
	// AttachSession raises the generation (a new session's first one is now, so that a deleted
	// session's holder can never write to its successor) and makes the caller the holder. peek only
	// looks: generation, holder, cursors, filters; ErrNotFound is never returned, an absent session
	// peeks as an empty answer. ttl_s 0 is 7 days. One that would have to be created above the
	// quota is a *TooManySessions, and nothing has changed; those that are created at the same
	// moment may pass a bound together.
	AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest, quota Quota, now uint64) (*meshv1.AttachSessionResponse, error)
	// WriteCursors does every write, all in one transaction, and answers each with OK,
	// SESSION_TAKEN_OVER (another generation holds it) or NOT_FOUND. Refused writes change nothing.
	// A write that is sent while the session is being attached may be OK though AttachSession does
	// not tell of it: later it is told, unless the new generation wrote of its topics. A write
	// replaces the cursors of the topics named, and begins the TTL of a detached session anew. Dead
	// letters go down with their write, once per (user, session, topic, epoch, seq), whichever
	// write brings them.
	WriteCursors(ctx context.Context, writes []*meshv1.SessionWrite, now uint64) ([]wirev1.Code, error)
	// FoldCursors puts what WriteCursors wrote into an order in which it takes little room and is
	// found quickly; nothing that can be asked changes. It is called every few seconds by one
	// store, and may run for a minute.
	FoldCursors(ctx context.Context, how Fold) error
	// ListSessions without cursors, ordered by (user, name); user "": all. limit is at least 1.
	// next "" says that it was the last page. sizes: with filter_count, cursor_count and
	// kept_bytes.
	ListSessions(ctx context.Context, q SessionQuery, now uint64) (page []*pushmeshv1.Session, next string, err error)
	// CountSessions is how many sessions there are in all.
	CountSessions(ctx context.Context) (int, error)
	// GetSession with cursors (head and lag left 0); ErrNotFound.
	GetSession(ctx context.Context, user, name string, now uint64) (*pushmeshv1.Session, error)
	// DeleteSession with everything of it except its dead letters; ErrNotFound. It answers which
	// edge held it ("": none), and its last generation.
	DeleteSession(ctx context.Context, user, name string) (edge string, generation uint64, err error)
	// AdoptSession gives a session to another owner in one transaction: filters, cursors, dead
	// letters (but for those that the new owner has already) and TTL, which begins anew.
	// ErrNotFound; ErrExists where the new owner has a session of that name. Its holder's writes
	// are refused from then on, also where it fails after it began: then whoever attaches next goes
	// on.
	AdoptSession(ctx context.Context, a Adoption, now uint64) (Adopted, error)
	// ExpireSessions deletes up to limit detached sessions whose time is over, and names them.
	ExpireSessions(ctx context.Context, now uint64, limit int) (deleted []SessionKey, err error)
	// SessionEdges names the edges that hold any session.
	SessionEdges(ctx context.Context) ([]string, error)
	// DetachEdge lets go of up to limit sessions that an edge holds since before now; their TTL
	// begins, the whole of it for empty ones too. Those that somebody is about to change are left
	// for a later call: fewer than limit were let go where no others are left.
	// Generations stay, so that a holder that lives after all can still write.
	DetachEdge(ctx context.Context, edgeID string, now uint64, limit int) (detached int, err error)
}

// SessionQuery of ListSessions.
type SessionQuery struct {
	User      string
	Limit     int
	PageToken string
	Sizes     bool
}

// SessionKey names a session.
type SessionKey struct{ User, Name string }

// Adoption is a session that gets another owner.
type Adoption struct {
	From, To SessionKey
	DryRun   bool // nothing changes
}

// Adopted is what AdoptSession did.
type Adopted struct {
	Edge       string // which held it; "": none
	Generation uint64 // holds of From under older ones are over
	Already    bool   // an earlier call did it
}

// Fold says how much FoldCursors does.
type Fold int

// Folds.
const (
	FoldDue  Fold = iota // what is due
	FoldPack             // now, without touching what lies in order already
	FoldAll              // now, all of it
)

// Namespaces and the version of the whole set, which grows with every change.
type Namespaces interface {
	// SeedNamespaces puts those that are not there, marked builtin. Nothing new: the version stays.
	SeedNamespaces(ctx context.Context, builtin []*pushmeshv1.Namespace) error
	// PutNamespace sets a policy; what is stored (builtin kept, version set) is answered.
	PutNamespace(ctx context.Context, ns *pushmeshv1.Namespace) (*pushmeshv1.Namespace, error)
	// ListNamespaces ordered by prefix. have equal to the version answers the version alone.
	ListNamespaces(ctx context.Context, have uint64) (version uint64, all []*pushmeshv1.Namespace, err error)
	// DeleteNamespace; ErrNotFound; ErrConflict for a builtin one.
	DeleteNamespace(ctx context.Context, prefix string) error
}

// DeadLetters that sessions gave up.
type DeadLetters interface {
	// ListDeadLetters with ids above after, ascending, whose topic matches filter ("": all). limit
	// is at least 1.
	ListDeadLetters(ctx context.Context, filter string, after uint64, limit int) ([]*meshv1.DeadLetter, error)
	// FindDeadLetters by id, ascending; those that are not there are left out.
	FindDeadLetters(ctx context.Context, ids []uint64) ([]*meshv1.DeadLetter, error)
	// DiscardDeadLetters deletes and says how many there were.
	DiscardDeadLetters(ctx context.Context, ids []uint64) (int, error)
	// UncopiedLetters with ids above after, ascending: those that no batch (Batch.Copied) and no
	// MarkLettersCopied named.
	UncopiedLetters(ctx context.Context, after uint64, limit int) ([]*meshv1.DeadLetter, error)
	// MarkLettersCopied has UncopiedLetters leave letters out; those that are not there are no
	// error.
	MarkLettersCopied(ctx context.Context, ids []uint64) error
}
