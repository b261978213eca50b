package revocation

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// askTimeout bounds one question to the store.
const askTimeout = 2 * time.Second

// Lister is what Watch needs of the store.
type Lister interface {
	ListRevocations(ctx context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error)
}

// Watch holds what is revoked now. Until a store has sent the list no token can be taken.
type Watch struct {
	*newest.Watch[List]
	from Lister
	now  func() time.Time
}

// NewWatch makes a watch that knows nothing yet. The bus must be started before the watch; nil: a
// store is asked at intervals. now is the mesh's time (meshtime.Clock).
func NewWatch(from Lister, b newest.Bus, now func() time.Time, log *slog.Logger) *Watch {
	w := &Watch{from: from, now: now}
	w.Watch = newest.NewWatch(newest.WatchConfig[List]{
		Name: "revocation", What: "which tokens are revoked", Bus: b, Changed: bus.RevocationsChanged, Beat: (*meshv1.StoreBeat).GetRevocationsVersion,
		Version: (*List).Version, Ask: w.ask, Log: log,
	})
	return w
}

// Refuses says why a token is not taken: it is revoked (UNAUTHENTICATED), or that can't be told now
// (UNAVAILABLE, also of a token that was issued at about the time of its user's revocation). nil:
// it is good. It takes no lock, and now is Unix time in microseconds.
func (w *Watch) Refuses(t Token, now uint64) *code.Error {
	if why := w.List().Admits(t, now); why != nil {
		return why
	}
	return w.Fault()
}

// List is what is known to be revoked; nil: that is not known yet.
func (w *Watch) List() *List { return w.Newest() }

// ask gets every page of what has changed. Changes of what is known apply with each page: they may
// be what closes connections. A list that is not known, or begins anew, applies as a whole.
func (w *Watch) ask(ctx context.Context, list *List, apply func(*List)) error {
	whole := list == nil
	for more := true; more; {
		page, err := w.page(ctx, list.Version())
		if err != nil {
			return err
		}
		if more = page.GetMore(); more && page.GetVersion() <= list.Version() && !page.GetAnew() {
			return fmt.Errorf("a page of revocations of version %d ends with version %d", list.Version(), page.GetVersion())
		}
		whole = whole || page.GetAnew()
		unchanged := list != nil && page.GetVersion() == list.version
		list = list.with(page, uint64(w.now().UnixMicro()))
		if (!whole || !more) && !unchanged {
			apply(list)
		}
	}
	return nil
}

func (w *Watch) page(ctx context.Context, have uint64) (*meshv1.StoreServiceListRevocationsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.from.ListRevocations(ctx, &meshv1.StoreServiceListRevocationsRequest{HaveVersion: have})
}
