package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// perConnection is how many subscriptions an edge takes of one.
const perConnection = 1000

// A tree of topics: many/K/N, of so many K.
const branches = 1000

func manyTopic(n int) string { return fmt.Sprintf("%s/%d/%d", Manys, n%branches, n/branches) }

// fillTopics publishes a message to each topic of the tree, once for a mesh.
func fillTopics(ctx context.Context, t *Target) error {
	if t.has(ctx, manyTopic(t.Topics-1), 1) {
		return nil
	}
	conn, err := t.router()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	const atOnce = 50
	for n := 0; n < t.Topics; n += atOnce {
		var topics []string
		for i := range min(atOnce, t.Topics-n) {
			topics = append(topics, manyTopic(n+i))
		}
		req := &pushmeshv1.PublishRequest{Topics: topics, Payload: []byte("{}"), DedupeKey: fmt.Sprint("fill-", n)}
		if err := insist(ctx, func() error { _, err := api.Publish(as(ctx, "fill"), req); return err }); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a topic has a message with a seq.
func (t *Target) has(ctx context.Context, topic string, seq uint64) bool {
	conn, err := t.router()
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	head, err := pushmeshv1.NewHistoryServiceClient(conn).Head(ctx, &pushmeshv1.HeadRequest{Topics: []string{topic}})
	return err == nil && len(head.GetHeads()) == 1 && head.GetHeads()[0].GetSeq() >= seq
}

// insist repeats a call until it succeeds.
func insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// burst sends Subscribes on one connection, and connects again after a while.
func (t *Target) burst(ctx context.Context, c *Codes, n int, hold time.Duration, of func(i int) *wirev1.Subscribe) error {
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	x, err := t.greet(ctx, c, &wirev1.Hello{})
	if err != nil {
		return err
	}
	for i := range n {
		s := of(i)
		s.Id = uint32(i + 1)
		x.subscribe(s)
	}
	if err := x.flush(); err != nil {
		return err
	}
	x.listen(nil)
	return nil
}

func subscriptions() []Attack {
	return []Attack{{
		Name: "last-n", What: "1,000 wildcard Subscribes with LAST_N, 45 KB, on one connection, every 5 s", Metric: "pushmesh_edge_log_reads_total", Before: fillTopics,
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, 1, c, func(ctx context.Context, _ int) error {
				return t.burst(ctx, c, t.of(perConnection), 5*time.Second, func(i int) *wirev1.Subscribe {
					return &wirev1.Subscribe{Filter: fmt.Sprintf("%s/%d/#", Manys, i%branches), Start: wirev1.Start_START_LAST_N, Seq: 10}
				})
			})
		},
	}, {
		Name: "wide-wildcards", What: "wildcard Subscribes that match every topic of 95,000, 52 a second", Metric: "pushmesh_edge_refused_total", Before: fillTopics,
		Run: wideWildcards,
	}, {
		Name: "groups", What: "60 connections join 1,000 groups each", Metric: "pushmesh_edge_subscriptions",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(60), c, func(ctx context.Context, who int) error {
				return t.burst(ctx, c, t.of(perConnection), time.Hour, func(i int) *wirev1.Subscribe {
					return &wirev1.Subscribe{Filter: fmt.Sprintf("room/groups/%d", i), Group: fmt.Sprintf("g-%d-%d", who, i), Ack: true}
				})
			})
		},
	}, {
		Name: "where", What: "100 connections with 1,000 wildcards each, every one with a content filter of its own", Metric: "pushmesh_edge_refused_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(100), c, func(ctx context.Context, who int) error {
				return t.burst(ctx, c, t.of(perConnection), time.Hour, func(i int) *wirev1.Subscribe {
					return &wirev1.Subscribe{Filter: fmt.Sprintf("siege/where/%d/+", i), Where: fmt.Sprintf("payload.x > %d.0", who*perConnection+i)}
				})
			})
		},
	}, {
		Name: "dear-where", What: "10 connections whose filters on the topics of others cost as much as one may", Metric: "pushmesh_edge_where_refused_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(10), c, func(ctx context.Context, who int) error {
				return t.burst(ctx, c, t.of(perConnection), 5*time.Second, func(i int) *wirev1.Subscribe {
					dear := strings.Repeat(`headers.exists(h, headers[h].contains("aaaaaaaaaaaaaaaaab")) || `, 40)
					return &wirev1.Subscribe{Filter: "siege/live/+", Where: fmt.Sprintf("%s payload.x > %d.0", dear, who*perConnection+i)}
				})
			})
		},
	}, {
		Name: "dear-wildcards", What: "10 connections with 1,000 filters of 20 levels each that match in many ways", Metric: "pushmesh_edge_refused_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(10), c, func(ctx context.Context, who int) error {
				return t.burst(ctx, c, t.of(perConnection), 5*time.Second, func(i int) *wirev1.Subscribe {
					levels := make([]string, 20)
					for k := range levels {
						if levels[k] = "+"; (who*perConnection+i)>>k&1 == 1 {
							levels[k] = "a"
						}
					}
					return &wirev1.Subscribe{Filter: "siege/" + strings.Join(levels, "/") + "/#"}
				})
			})
		},
	}, {
		Name: "churn", What: "20 connections subscribe and unsubscribe as fast as they are read", Metric: "pushmesh_edge_reads_deferred_total",
		Run: churn,
	}}
}

// wideWildcards asks for positions in every topic, with a fresh connection for each 256.
func wideWildcards(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 1, c, func(ctx context.Context, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go func() {
			for id := uint32(1); ctx.Err() == nil; id++ {
				x.subscribe(&wirev1.Subscribe{Id: id, Filter: Manys + "/#", Ack: true})
				if x.flush() != nil {
					return
				}
				pause(ctx, time.Second/52)
			}
		}()
		x.listen(nil)
		return nil
	})
}

func churn(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(20), c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for id := uint32(1); ctx.Err() == nil; id += 50 {
			for i := range uint32(50) {
				x.subscribe(&wirev1.Subscribe{Id: id + i, Filter: fmt.Sprintf("room/churn/%d/%d", who, i)})
				x.add(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id + i})
			}
			if err := x.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}
