package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func backends() []Attack {
	return []Attack{{
		Name: "backends", What: "100 backends that consume, of which some never read, some send what makes no sense, some leave at once", Metric: "pushmesh_router_subscribe_streams",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			conn, err := t.router()
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			api := pushmeshv1.NewSubscribeServiceClient(conn)
			return many(ctx, t.of(100), c, func(ctx context.Context, who int) error { return consume(ctx, api, c, who) })
		},
	}, {
		Name: "rankings", What: "50 callers that have 20,000 candidates ranked by an expression that is too dear, or 2,000 by one that may be", Metric: "pushmesh_compute_jobs_total",
		Run: rankings,
	}, {
		Name: "models", What: "4 callers that put models that are none, or do not end", Metric: "pushmesh_compute_models",
		Run: models,
	}}
}

func consume(ctx context.Context, api pushmeshv1.SubscribeServiceClient, c *Codes, who int) error {
	ctx, cancel := context.WithTimeout(as(ctx, fmt.Sprint("backend-", who%4)), 5*time.Second)
	defer cancel()
	s, err := api.Subscribe(ctx)
	if err != nil {
		return err
	}
	all := []*pushmeshv1.SubscribeRequest{
		{Request: &pushmeshv1.SubscribeRequest_Hello{Hello: &wirev1.Hello{ClientId: fmt.Sprint("b", who), ReceiveWindow: windowMost}}},
		{Request: &pushmeshv1.SubscribeRequest_Subscribe{Subscribe: &wirev1.Subscribe{Id: 1, Filter: "room/siege/+", Ack: true}}},
		{Request: &pushmeshv1.SubscribeRequest_Subscribe{Subscribe: &wirev1.Subscribe{Id: 2, Filter: heavy, Start: wirev1.Start_START_EARLIEST, Ack: true}}},
	}
	switch who % 4 {
	case 1: // what makes no sense
		all = append(all, all[0], &pushmeshv1.SubscribeRequest{}, &pushmeshv1.SubscribeRequest{Connection: 7, Request: &pushmeshv1.SubscribeRequest_Ack{Ack: &wirev1.Ack{Entries: make([]*wirev1.Ack_Entry, 1000)}}})
	case 2: // leaves at once
		all = all[:1]
	}
	for _, req := range all {
		if s.Send(req) != nil {
			break
		}
	}
	if who%4 == 0 { // never reads
		<-ctx.Done()
		return nil
	}
	for {
		res, err := s.Recv()
		if err != nil {
			c.Error(err)
			return nil
		}
		c.Note("events")
		if who%4 == 2 && len(res.GetEvents()) > 0 {
			return nil
		}
	}
}

func rankings(ctx context.Context, t *Target, c *Codes) error {
	conn, err := t.router()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewRankServiceClient(conn)
	dear, fair := ranking(t.of(20_000), 60), ranking(t.of(2000), 10)
	return many(ctx, t.of(50), c, func(ctx context.Context, who int) error {
		req := dear
		if who%2 == 0 {
			req = fair
		}
		_, err := api.Rank(as(ctx, fmt.Sprint("ranker-", who)), req)
		if ctx.Err() == nil {
			c.Error(err)
		}
		return nil
	})
}

// ranking is of so many candidates, by expressions of so many terms.
func ranking(candidates, terms int) *pushmeshv1.RankRequest {
	req := &pushmeshv1.RankRequest{Filter: strings.Repeat("features.a * features.b > 0.1 || ", terms) + "features.c > 0.5", TopK: 10}
	req.Expression = &pushmeshv1.ExpressionScorer{Expression: strings.Repeat("features.a * features.b + ", terms) + "features.c"}
	for i := range candidates {
		req.Candidates = append(req.Candidates, &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{"a": rand.Float64() / 10, "b": rand.Float64() / 10, "c": rand.Float64()}})
	}
	return req
}

func models(ctx context.Context, t *Target, c *Codes) error {
	conn, err := t.router()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewRankServiceClient(conn)
	beginnings := []string{"tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1000000\n", `{"learner":{"gradient_booster":` + strings.Repeat(`{"a":`, 10_000), "binf", "\x00\xff\xfe"}
	return many(ctx, 4, c, func(ctx context.Context, who int) error {
		s, err := api.PutModel(as(ctx, fmt.Sprint("modeller-", who)))
		if err != nil {
			return err
		}
		part := []byte(strings.Repeat(beginnings[who%len(beginnings)], 1+(1<<19)/len(beginnings[who%len(beginnings)])))
		for range t.of(64) {
			if s.Send(&pushmeshv1.PutModelRequest{Name: fmt.Sprint("hostile-", who), Data: part[:min(len(part), 1<<20)]}) != nil {
				break
			}
		}
		_, err = s.CloseAndRecv()
		if ctx.Err() == nil {
			c.Error(err)
		}
		return nil
	})
}
