package api

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
)

// KeptLog is what Kept needs of the store (storeclient.Client).
type KeptLog interface {
	ListKept(ctx context.Context, req *meshv1.StoreServiceListKeptRequest) (*meshv1.StoreServiceListKeptResponse, error)
	Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error)
}

// KeptPublisher publishes the messages that delete (publish.Publisher).
type KeptPublisher interface {
	Publish(m *publish.Message) (refused bool)
}

// Kept is pushmesh.v1.KeptService.
type Kept struct {
	pushmeshv1.UnimplementedKeptServiceServer
	log       KeptLog
	publisher KeptPublisher
	policies  func() *policy.Table
}

// NewKept makes the service.
func NewKept(log KeptLog, publisher KeptPublisher, policies func() *policy.Table) *Kept {
	return &Kept{log: log, publisher: publisher, policies: policies}
}

// List implements KeptService. A page token is the last topic of the page before.
func (k *Kept) List(ctx context.Context, req *pushmeshv1.KeptServiceListRequest) (*pushmeshv1.KeptServiceListResponse, error) {
	if req.GetLimit() > maxPage {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is %d, at most 1,000", req.GetLimit()))
	}
	ask := &meshv1.StoreServiceListKeptRequest{After: req.GetPageToken(), Limit: cmp.Or(req.GetLimit(), defaultPage)}
	if filter := req.GetFilter(); filter != "" {
		if err := topic.CheckFilter(filter); err != nil {
			return nil, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
		ask.Filters = []string{filter}
	}
	resp, err := k.log.ListKept(ctx, ask)
	if err != nil {
		return nil, code.From(err)
	}
	out := &pushmeshv1.KeptServiceListResponse{}
	for _, h := range resp.GetTopics() {
		out.Kept = append(out.Kept, &pushmeshv1.Kept{Topic: h.GetTopic(), Epoch: h.GetEpoch(), Seq: h.GetKept()})
	}
	if n := len(out.GetKept()); resp.GetMore() && n > 0 {
		out.NextPageToken = out.GetKept()[n-1].GetTopic()
	}
	return out, nil
}

// Delete implements KeptService.
func (k *Kept) Delete(ctx context.Context, req *pushmeshv1.KeptServiceDeleteRequest) (*pushmeshv1.KeptServiceDeleteResponse, error) {
	name := req.GetTopic()
	if err := checkTopics([]string{name}, 1); err != nil {
		return nil, err
	}
	pol := k.policies().For(name)
	if pol.Refusal != nil {
		return nil, pol.Refusal
	}
	if !pol.KeepLast {
		return nil, code.New(wirev1.Code_CODE_CONFLICT, "namespace "+pol.Prefix+" keeps no last messages (pushmesh namespace set "+pol.Prefix+" --keep last)")
	}
	heads, err := k.log.Heads(ctx, []string{name}, nil, 0)
	if err != nil {
		return nil, code.From(err)
	}
	if len(heads) != 1 || heads[0].GetKept() == 0 {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "the topic keeps no message")
	}
	audit.Before(ctx, map[string]any{"topic": name, "epoch": heads[0].GetEpoch(), "seq": heads[0].GetKept()})
	result := make(receiver, 1)
	k.publisher.Publish(&publish.Message{Context: ctx, Request: &pushmeshv1.PublishRequest{Topic: name}, To: result})
	var r replayed
	select {
	case r = <-result:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := r.res.Err(); err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, map[string]any{"topic": name, "epoch": r.res.Epoch, "seq": r.res.Seq})
	return &pushmeshv1.KeptServiceDeleteResponse{Epoch: r.res.Epoch, Seq: r.res.Seq}, nil
}
