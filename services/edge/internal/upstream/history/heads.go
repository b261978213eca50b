package history

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// MaxTopics is how many topics the filters of one question may match together; a single filter that
// matches more can't be followed.
const MaxTopics = 100_000

// headsTimeout bounds one question.
const headsTimeout = 5 * time.Second

// headPauses between attempts: a takeover of shards takes a few seconds, a subscriber's patience
// about as long.
var headPauses = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// Heads of topics, asked again a few times where that can help.
func Heads(ctx context.Context, s Store, topics []string) ([]exchange.Head, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	return patiently(ctx, func() ([]exchange.Head, error) { return ask(ctx, s, topics, nil) })
}

// HeadsUnder are the heads of the topics that match filters, asked again a few times where that can
// help. Filters that match more than MaxTopics are named in tooMany, and their topics are not among
// the heads unless another filter matches them.
func HeadsUnder(ctx context.Context, s Store, filters []string) (heads []exchange.Head, tooMany []string, err error) {
	if len(filters) == 0 {
		return nil, nil, nil
	}
	heads, err = patiently(ctx, func() ([]exchange.Head, error) { return ask(ctx, s, nil, filters) })
	switch {
	case err == nil:
		return heads, nil, nil
	case code.Of(err) != wirev1.Code_CODE_TOO_MANY_TOPICS:
		return nil, nil, err
	case len(filters) == 1:
		return nil, filters, nil
	}
	for _, half := range [][]string{filters[:len(filters)/2], filters[len(filters)/2:]} {
		hs, too, err := HeadsUnder(ctx, s, half)
		if err != nil {
			return nil, nil, err
		}
		heads, tooMany = append(heads, hs...), append(tooMany, too...)
	}
	return heads, tooMany, nil
}

func patiently(ctx context.Context, f func() ([]exchange.Head, error)) ([]exchange.Head, error) {
	for _, pause := range headPauses {
		heads, err := f()
		if err == nil || !code.Retryable(code.Of(err)) || !sleep(ctx, pause) {
			return heads, err
		}
	}
	return f()
}

func ask(ctx context.Context, s Store, topics, filters []string) ([]exchange.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, headsTimeout)
	defer cancel()
	limit := uint32(0)
	if len(filters) > 0 {
		limit = MaxTopics
	}
	heads, err := s.Heads(ctx, topics, filters, limit)
	if err != nil {
		return nil, code.From(err)
	}
	return convert(heads), nil
}

func convert(heads []*meshv1.Head) []exchange.Head {
	out := make([]exchange.Head, len(heads))
	for i, h := range heads {
		out[i] = exchange.Head{Topic: h.GetTopic(), Epoch: h.GetEpoch(), Head: h.GetHead(), Oldest: h.GetOldest(), Behind: h.GetHead()}
		if h.GetKept() > 0 {
			out[i].Behind = h.GetKept() - 1
		}
	}
	return out
}
