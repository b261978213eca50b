package admin

import (
	"context"
	"iter"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// DeadLetter is a message that a session or group gave up.
type DeadLetter struct {
	// ID grows in the order of arrival.
	ID uint64
	// Topic, Epoch and Seq of the message.
	Topic       string
	Epoch, Seq  uint64
	Payload     []byte
	Headers     map[string]string
	MessageID   pushmesh.ID
	PublishedAt time.Time
	Priority    uint32
	From        string
	// Reason: CodeAttemptsExhausted or CodeExpired.
	Reason pushmesh.Code
	// Attempts on all connections together.
	Attempts uint32
	// User and Session that gave it up, and when.
	User, Session string
	At            time.Time
}

// DeadLetters yields those of the topics of a filter, the oldest first; "": all.
func (c *Client) DeadLetters(ctx context.Context, filter string) iter.Seq2[DeadLetter, error] {
	return pages(func(token string) ([]DeadLetter, string, error) {
		r, err := ask(ctx, c.deadLetters.List, &pushmeshv1.DeadLetterServiceListRequest{Filter: filter, Limit: pageSize, PageToken: token})
		return mapped(r.GetDeadLetters(), deadLetterOf), r.GetNextPageToken(), err
	})
}

// Which dead letters: IDs, 1,000 at most, or all that there are of the topics of Filter.
type Which struct {
	IDs    []uint64
	Filter string
}

// Replayed is what became of dead letters.
type Replayed struct {
	// Replayed were published again, Failed were not and are kept.
	Replayed, Failed uint64
	// Failures says why, of the first 100.
	Failures []DeadLetterFailure
}

// DeadLetterFailure is why one was not published.
type DeadLetterFailure struct {
	ID     uint64
	Code   pushmesh.Code
	Reason string
}

// ReplayDeadLetters publishes dead letters to the topics that they came from, for every subscriber,
// and removes them. Each is published once, however often it is replayed.
func (c *Client) ReplayDeadLetters(ctx context.Context, which Which) (Replayed, error) {
	r, err := change(ctx, c.deadLetters.Replay, &pushmeshv1.DeadLetterServiceReplayRequest{Ids: which.IDs, Filter: which.Filter})
	return Replayed{
		Replayed: r.GetReplayed(), Failed: r.GetFailed(),
		Failures: mapped(r.GetFailures(), func(f *pushmeshv1.DeadLetterFailure) DeadLetterFailure {
			return DeadLetterFailure{ID: f.GetId(), Code: pushmesh.Code(f.GetCode()), Reason: f.GetError()}
		}),
	}, err
}

// DiscardDeadLetters removes dead letters for good, and returns how many there were.
func (c *Client) DiscardDeadLetters(ctx context.Context, which Which) (uint64, error) {
	r, err := change(ctx, c.deadLetters.Discard, &pushmeshv1.DeadLetterServiceDiscardRequest{Ids: which.IDs, Filter: which.Filter})
	return r.GetDiscarded(), err
}

func deadLetterOf(m *pushmeshv1.DeadLetter) DeadLetter {
	return DeadLetter{
		ID: m.GetId(), Topic: m.GetTopic(), Epoch: m.GetEpoch(), Seq: m.GetSeq(), Payload: m.GetPayload(), Headers: m.GetHeaders(), MessageID: idOf(m.GetMessageId()),
		PublishedAt: timeOf(m.GetPublishedAt()), Priority: m.GetPriority(), From: m.GetFrom(), Reason: pushmesh.Code(m.GetReason()), Attempts: m.GetAttempts(),
		User: m.GetUser(), Session: m.GetSession(), At: timeOf(m.GetAt()),
	}
}
