package backend

import (
	"context"
	"errors"
)

// ErrAlive reports that a run did something since the mark that was taken for its last.
var ErrAlive = errors.New("the store is alive")

// Watch is how one run of a store sees the others in a database, and is seen by them. Its
// connection is recorded as the run's, so that fencing the run ends it. It has one user. After any
// error but ErrAlive it is of no more use: Close it and open another.
type Watch interface {
	// Look does something that the database notices (it is the run's heartbeat), and then reads who
	// owned what last and who is connected.
	Look(ctx context.Context) (View, error)
	// Fence ends what a run has in this database, as Backend.Fence does, unless the run did
	// anything since mark was read (ErrAlive, and nothing is ended).
	Fence(ctx context.Context, run RunID, mark string) error
	// Close ends the heartbeat.
	Close() error
}

// View is what a database has of stores at one moment.
type View struct {
	// Owners are those of Backend.Owners.
	Owners []Ownership
	// Runs are those with connections; a run without any can't commit, and need not be fenced.
	Runs []Pulse
}

// RunID names one run of a store.
type RunID struct {
	StoreID     string
	Incarnation uint64
}

// Pulse of a run.
type Pulse struct {
	RunID
	// Mark is another one whenever the run did anything in the database. It is compared, never
	// computed with: no clock of any host takes part.
	Mark string
	// Busy says that the database works for the run at this moment, or can't tell: that is no
	// silence.
	Busy bool
	// Unfenceable says why the run could not be fenced, and what to do; "": it could.
	Unfenceable string
}

// Run of an owner.
func (o Owner) Run() RunID { return RunID{o.StoreID, o.Incarnation} }
