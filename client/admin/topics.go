package admin

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Member is a connection in a topic, by whichever of its subscriptions.
type Member struct {
	Topic string
	Edge  string
	// ConnectionID is unique in the mesh.
	ConnectionID uint64
	ClientID     string
	User         string
	// Session; empty: it has none.
	Session string
	// ConnectedAt and SubscribedAt, in whole seconds.
	ConnectedAt, SubscribedAt time.Time
}

// Members yields who is in a topic. Its namespace must have Presence. Where edges did not answer,
// what they know is missing, and the last error is an *Incomplete.
func (c *Client) Members(ctx context.Context, topic string) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		silent := uint32(0)
		pages(func(token string) ([]Member, string, error) {
			r, err := ask(ctx, c.presence.List, &pushmeshv1.PresenceServiceListRequest{Topic: topic, Limit: pageSize, PageToken: token})
			silent = max(silent, r.GetSilentEdges())
			if err == nil && r.GetNextPageToken() == "" && silent > 0 {
				err = &Incomplete{Edges: int(silent)}
			}
			return mapped(r.GetMembers(), memberOf), r.GetNextPageToken(), err
		})(yield)
	}
}

// MemberCounts are how many are in each topic, of 1,000 at most, in their order. With an
// *Incomplete the counts are those of the edges that answered.
func (c *Client) MemberCounts(ctx context.Context, topics ...string) ([]uint64, error) {
	r, err := ask(ctx, c.presence.Count, &pushmeshv1.CountRequest{Topics: topics})
	if err == nil && r.GetSilentEdges() > 0 {
		err = &Incomplete{Edges: int(r.GetSilentEdges())}
	}
	return r.GetCounts(), err
}

func memberOf(m *pushmeshv1.Member) Member {
	return Member{
		Topic: m.GetTopic(), Edge: m.GetEdge(), ConnectionID: m.GetConnectionId(), ClientID: m.GetClientId(), User: m.GetUser(), Session: m.GetSession(),
		ConnectedAt: timeOf(m.GetConnectedAt()), SubscribedAt: timeOf(m.GetSubscribedAt()),
	}
}

// Head is where a topic's log stands.
type Head struct {
	Topic string
	Epoch uint64
	// Seq is the highest; 0: nothing was ever published.
	Seq uint64
	// Oldest seq that is still there; Seq + 1: none is.
	Oldest uint64
}

// Heads are where topics' logs stand, of 10,000 at most, in their order.
func (c *Client) Heads(ctx context.Context, topics ...string) ([]Head, error) {
	r, err := ask(ctx, c.history.Head, &pushmeshv1.HeadRequest{Topics: topics})
	return mapped(r.GetHeads(), func(h *pushmeshv1.TopicHead) Head {
		return Head{Topic: h.GetTopic(), Epoch: h.GetEpoch(), Seq: h.GetSeq(), Oldest: h.GetOldest()}
	}), err
}

// Stored is a message of a log.
type Stored struct {
	Topic       string
	Epoch, Seq  uint64
	Payload     []byte
	PublishedAt time.Time
	ID          pushmesh.ID
	Headers     map[string]string
	Priority    uint32
	Traceparent string
	// From is the publishing user; empty: a backend.
	From string
}

// Read yields the messages of a topic's log behind a position, up to the head; limit 0: all of
// them. An Epoch of 0 is the present one; with another one than the topic's it is EPOCH_CHANGED. It
// is not asked again where it breaks off: what was read last says where to go on.
func (c *Client) Read(ctx context.Context, behind pushmesh.Position, limit uint64) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.history.Read(ctx, &pushmeshv1.ReadRequest{Topic: behind.Topic, Epoch: behind.Epoch, FromSeq: behind.Seq + 1, Limit: limit})
		for err == nil {
			var r *pushmeshv1.ReadResponse
			r, err = stream.Recv()
			for _, m := range r.GetMessages() {
				if !yield(storedOf(m), nil) {
					return
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(Stored{}, ext.Fault(ctx, err))
		}
	}
}

func storedOf(m *pushmeshv1.StoredMessage) Stored {
	return Stored{
		Topic: m.GetTopic(), Epoch: m.GetEpoch(), Seq: m.GetSeq(), Payload: m.GetPayload(), PublishedAt: timeOf(m.GetPublishedAt()), ID: idOf(m.GetId()),
		Headers: m.GetHeaders(), Priority: m.GetPriority(), Traceparent: m.GetTraceparent(), From: m.GetFrom(),
	}
}
