package admin

import (
	"context"
	"iter"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Session is a durable one, of a user and a name.
type Session struct {
	User, Name string
	// Generation grows with every connection that has it.
	Generation uint64
	// Edge that it is attached at now, with the connection; empty: it is not.
	Edge         string
	ConnectionID uint64
	// AttachedAt, ExpiresAt and CreatedAt; the last is zero for very old sessions.
	AttachedAt, ExpiresAt, CreatedAt time.Time
	// Cursors, of Session alone.
	Cursors []Cursor
	// QueuedMessages and QueuedBytes of the connection at its edge, of Session alone.
	QueuedMessages, QueuedBytes uint64
	// Origin is the address of the client that created it, where that is counted.
	Origin string
	// Filters, Positions and KeptBytes are what it keeps in the database, of SessionSizes alone.
	Filters, Positions, KeptBytes uint64
}

// Cursor is a session's place in one topic.
type Cursor struct {
	Topic string
	Epoch uint64
	// Floor: everything up to here is ACKed.
	Floor uint64
	// Head of the topic now.
	Head uint64
	// Lag is how many messages above Floor are not ACKed.
	Lag uint64
}

// Sessions yields those of a user, without their cursors; "": all users'.
func (c *Client) Sessions(ctx context.Context, user string) iter.Seq2[Session, error] {
	return c.listSessions(ctx, user, false)
}

// SessionSizes is Sessions with what each keeps, which costs the database more.
func (c *Client) SessionSizes(ctx context.Context, user string) iter.Seq2[Session, error] {
	return c.listSessions(ctx, user, true)
}

func (c *Client) listSessions(ctx context.Context, user string, sizes bool) iter.Seq2[Session, error] {
	return pages(func(token string) ([]Session, string, error) {
		r, err := ask(ctx, c.sessions.List, &pushmeshv1.SessionServiceListRequest{User: user, Limit: pageSize, PageToken: token, Sizes: sizes})
		return mapped(r.GetSessions(), sessionOf), r.GetNextPageToken(), err
	})
}

// Session is one with its cursors.
func (c *Client) Session(ctx context.Context, user, name string) (Session, error) {
	r, err := ask(ctx, c.sessions.Get, &pushmeshv1.SessionServiceGetRequest{User: user, Name: name})
	if err != nil {
		return Session{}, err
	}
	return sessionOf(r.GetSession()), nil
}

// DeleteSession forgets one, with all that it has not ACKed.
func (c *Client) DeleteSession(ctx context.Context, user, name string) error {
	_, err := change(ctx, c.sessions.Delete, &pushmeshv1.SessionServiceDeleteRequest{User: user, Name: name})
	return err
}

// Adoption is a session's change of owner.
type Adoption struct {
	// User and Name now.
	User, Name string
	// ToUser and ToName from then on; an empty ToName: it stays.
	ToUser, ToName string
	// DryRun only says whether it could be done.
	DryRun bool
}

// AdoptSession gives a session to another owner, whole or not at all. already says that an earlier
// call did: it may be repeated.
func (c *Client) AdoptSession(ctx context.Context, a Adoption) (already bool, err error) {
	r, err := change(ctx, c.sessions.Adopt, &pushmeshv1.AdoptRequest{User: a.User, Name: a.Name, ToUser: a.ToUser, ToName: a.ToName, DryRun: a.DryRun})
	return r.GetAlready(), err
}

// Who names connections: those of a client id, of a user, or of either.
type Who struct{ ClientID, User string }

// Disconnect closes connections in the whole mesh, and tells their clients why: CodeOK stands for
// CANCELLED. It returns how many there were.
func (c *Client) Disconnect(ctx context.Context, who Who, code pushmesh.Code, reason string) (int, error) {
	r, err := change(ctx, c.sessions.Disconnect, &pushmeshv1.DisconnectRequest{ClientId: who.ClientID, User: who.User, Code: wirev1.Code(code), Reason: reason})
	return int(r.GetDisconnected()), err
}

// SetProfile replaces what messages are ranked for, 64 features and 512 dimensions at most, for the
// connections that there are, and returns how many those are.
func (c *Client) SetProfile(ctx context.Context, who Who, profile map[string]float64, vector []float32) (int, error) {
	r, err := change(ctx, c.sessions.SetProfile, &pushmeshv1.SetProfileRequest{ClientId: who.ClientID, User: who.User, Profile: profile, Vector: vector})
	return int(r.GetConnections()), err
}

func sessionOf(m *pushmeshv1.Session) Session {
	return Session{
		User: m.GetUser(), Name: m.GetName(), Generation: m.GetGeneration(), Edge: m.GetEdge(), ConnectionID: m.GetConnectionId(),
		AttachedAt: timeOf(m.GetAttachedAt()), ExpiresAt: timeOf(m.GetExpiresAt()), CreatedAt: timeOf(m.GetCreatedAt()),
		Cursors: mapped(m.GetCursors(), func(c *pushmeshv1.Cursor) Cursor {
			return Cursor{Topic: c.GetTopic(), Epoch: c.GetEpoch(), Floor: c.GetFloor(), Head: c.GetHead(), Lag: c.GetLag()}
		}),
		QueuedMessages: m.GetQueuedMessages(), QueuedBytes: m.GetQueuedBytes(), Origin: m.GetOrigin(),
		Filters: m.GetFilterCount(), Positions: m.GetCursorCount(), KeptBytes: m.GetKeptBytes(),
	}
}
