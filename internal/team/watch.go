package team

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// askTimeout bounds one question to the store.
const askTimeout = 2 * time.Second

// Follower is what Watch needs of the store.
type Follower interface {
	FollowTeams(ctx context.Context, req *meshv1.StoreServiceFollowTeamsRequest) (*meshv1.StoreServiceFollowTeamsResponse, error)
}

// Watch holds the teams that there are now. Until a store has told them nobody can be let in: what
// teams grant would be refused.
type Watch struct {
	*newest.Watch[List]
	from Follower
	log  *slog.Logger
}

// NewWatch makes a watch that knows nothing yet. The bus must be started before the watch; nil: a
// store is asked at intervals.
func NewWatch(from Follower, b newest.Bus, log *slog.Logger) *Watch {
	w := &Watch{from: from, log: log}
	w.Watch = newest.NewWatch(newest.WatchConfig[List]{
		Name: "team", What: "which users are in which teams", Bus: b, Changed: bus.TeamsChanged, Beat: (*meshv1.StoreBeat).GetTeamsVersion,
		Version: (*List).Version, Ask: w.ask, Log: log,
	})
	return w
}

// List is what is known; nil: nothing yet.
func (w *Watch) List() *List { return w.Newest() }

// ask gets every page of what has changed, and applies them as one: in between a user would be in a
// team of a name that is another one now.
func (w *Watch) ask(ctx context.Context, list *List, apply func(*List)) error {
	var entries []*meshv1.TeamEntry
	have, begun, anew := list.Version(), uint64(0), list == nil
	for first, more := true, true; more; first = false {
		page, err := w.page(ctx, have, begun)
		if err != nil {
			return err
		}
		if page.GetAnew() {
			first, anew, entries = true, true, nil
		}
		if first && anew {
			begun = page.GetNewestVersion()
		}
		if more = page.GetMore(); more && page.GetVersion() <= have && !page.GetAnew() {
			return fmt.Errorf("a page of teams of version %d ends with version %d", have, page.GetVersion())
		}
		have, entries = page.GetVersion(), append(entries, page.GetEntries()...)
	}
	if list != nil && !anew && have == list.version {
		return nil
	}
	next, bad := list.with(have, anew, entries)
	for _, err := range bad {
		w.log.Error("a team grants nothing here: this program does not understand it", "error", err)
	}
	apply(next)
	return nil
}

func (w *Watch) page(ctx context.Context, have, begun uint64) (*meshv1.StoreServiceFollowTeamsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.from.FollowTeams(ctx, &meshv1.StoreServiceFollowTeamsRequest{HaveVersion: have, BegunVersion: begun})
}
