package api

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
)

// DeadLetters is what DeadLetter needs of the store (storeclient.Client).
type DeadLetters interface {
	ListDeadLetters(ctx context.Context, req *meshv1.ListDeadLettersRequest) (*meshv1.ListDeadLettersResponse, error)
	DiscardDeadLetters(ctx context.Context, req *meshv1.DiscardDeadLettersRequest) (*meshv1.DiscardDeadLettersResponse, error)
}

// Replayer publishes a dead letter again (publish.Publisher).
type Replayer interface {
	Replay(l *meshv1.DeadLetter, m *wirev1.Message, ref uint64, to publish.Receiver)
}

// Bounds of calls about dead letters.
const (
	defaultPage = 100
	maxPage     = 1000
	maxFailures = 100
)

// DeadLetter is pushmesh.v1.DeadLetterService.
type DeadLetter struct {
	pushmeshv1.UnimplementedDeadLetterServiceServer
	letters  DeadLetters
	replayer Replayer
}

// NewDeadLetter makes the service.
func NewDeadLetter(letters DeadLetters, replayer Replayer) *DeadLetter {
	return &DeadLetter{letters: letters, replayer: replayer}
}

// List implements DeadLetterService. A page token is the last id of the page before.
func (d *DeadLetter) List(ctx context.Context, req *pushmeshv1.DeadLetterServiceListRequest) (*pushmeshv1.DeadLetterServiceListResponse, error) {
	limit := req.GetLimit()
	switch {
	case limit == 0:
		limit = defaultPage
	case limit > maxPage:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is %d, at most 1,000", req.GetLimit()))
	}
	after := uint64(0)
	if req.GetPageToken() != "" {
		var err error
		if after, err = strconv.ParseUint(req.GetPageToken(), 10, 63); err != nil {
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is not one that an earlier answer had")
		}
	}
	resp, err := d.letters.ListDeadLetters(ctx, &meshv1.ListDeadLettersRequest{Filter: req.GetFilter(), AfterId: after, Limit: limit})
	if err != nil {
		return nil, code.From(err)
	}
	out := &pushmeshv1.DeadLetterServiceListResponse{}
	for _, l := range resp.GetDeadLetters() {
		shown, err := publicDeadLetter(l)
		if err != nil {
			return nil, err
		}
		out.DeadLetters = append(out.DeadLetters, shown)
		out.NextPageToken = strconv.FormatUint(l.GetId(), 10)
	}
	return out, nil
}

func letterMessage(l *meshv1.DeadLetter) (*wirev1.Message, error) {
	m := &wirev1.Message{}
	shared, _ := wire.Cut(l.GetBody())
	if err := proto.Unmarshal(shared, m); err != nil {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "a dead letter can't be decoded: "+err.Error())
	}
	return m, nil
}

func publicDeadLetter(l *meshv1.DeadLetter) (*pushmeshv1.DeadLetter, error) {
	m, err := letterMessage(l)
	if err != nil {
		return nil, err
	}
	return &pushmeshv1.DeadLetter{
		Id: l.GetId(), Topic: l.GetTopic(), Epoch: l.GetEpoch(), Seq: l.GetSeq(), Payload: m.GetPayload(), Headers: m.GetHeaders(),
		MessageId: m.GetId(), PublishedAt: m.GetPublishedAt(), Priority: m.GetPriority(), From: m.GetFrom(),
		Reason: l.GetReason(), Attempts: l.GetAttempts(), User: l.GetUser(), Session: l.GetSession(), At: l.GetAt(),
	}, nil
}

// Replay implements DeadLetterService.
func (d *DeadLetter) Replay(ctx context.Context, req *pushmeshv1.DeadLetterServiceReplayRequest) (*pushmeshv1.DeadLetterServiceReplayResponse, error) {
	out := &pushmeshv1.DeadLetterServiceReplayResponse{}
	err := d.each(ctx, req.GetIds(), req.GetFilter(), func(page []*meshv1.DeadLetter) error {
		done, err := d.replay(ctx, page, out)
		if err != nil || len(done) == 0 {
			return err
		}
		out.Replayed += uint64(len(done))
		// The append removed them, unless it turned out to be a repetition.
		_, err = d.letters.DiscardDeadLetters(ctx, &meshv1.DiscardDeadLettersRequest{Ids: done})
		return err
	})
	audit.After(ctx, map[string]any{"replayed": out.GetReplayed(), "failed": out.GetFailed(), "ids": req.GetIds()})
	if err != nil {
		return nil, code.From(err)
	}
	return out, nil
}

// Discard implements DeadLetterService.
func (d *DeadLetter) Discard(ctx context.Context, req *pushmeshv1.DeadLetterServiceDiscardRequest) (*pushmeshv1.DeadLetterServiceDiscardResponse, error) {
	out := &pushmeshv1.DeadLetterServiceDiscardResponse{}
	err := d.each(ctx, req.GetIds(), req.GetFilter(), func(page []*meshv1.DeadLetter) error {
		ids := make([]uint64, len(page))
		for i, l := range page {
			ids[i] = l.GetId()
		}
		resp, err := d.letters.DiscardDeadLetters(ctx, &meshv1.DiscardDeadLettersRequest{Ids: ids})
		out.Discarded += uint64(resp.GetDiscarded())
		return err
	})
	audit.After(ctx, map[string]any{"discarded": out.GetDiscarded(), "ids": req.GetIds()})
	if err != nil {
		return nil, code.From(err)
	}
	return out, nil
}

// each calls do with pages of the letters that are meant: those of ids that there are, or those of
// a filter that came before the call.
func (d *DeadLetter) each(ctx context.Context, ids []uint64, filter string, do func([]*meshv1.DeadLetter) error) error {
	switch {
	case (len(ids) == 0) == (filter == ""):
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "give either ids or a filter")
	case len(ids) > maxPage:
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "ids are at most 1,000")
	}
	if filter != "" {
		if err := topic.CheckFilter(filter); err != nil {
			return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
	}
	began := uint64(time.Now().UnixMicro())
	ask := &meshv1.ListDeadLettersRequest{Ids: ids, Filter: filter, Limit: maxPage}
	for {
		resp, err := d.letters.ListDeadLetters(ctx, ask)
		if err != nil {
			return err
		}
		page := resp.GetDeadLetters()
		if len(page) == 0 {
			return nil
		}
		last := page[len(page)-1].GetId()
		if len(ids) > 0 { // a page of large letters may lack some
			ask.Ids = above(ask.Ids, last)
		} else {
			ask.AfterId = last
			page = until(page, began)
		}
		if len(page) == 0 {
			return nil
		}
		if err := do(page); err != nil {
			return err
		}
		if len(ids) > 0 && len(ask.GetIds()) == 0 {
			return nil
		}
	}
}

func above(ids []uint64, last uint64) (rest []uint64) {
	for _, id := range ids {
		if id > last {
			rest = append(rest, id)
		}
	}
	return rest
}

// until leaves out what came after a time, so that letters that come back as fast as they are
// replayed keep no call going for ever.
func until(page []*meshv1.DeadLetter, at uint64) (kept []*meshv1.DeadLetter) {
	for _, l := range page {
		if l.GetAt() <= at {
			kept = append(kept, l)
		}
	}
	return kept
}
