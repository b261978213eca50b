// Package admin asks a mesh about itself, and changes it: the policies of namespaces, who is in a
// topic, logs, sessions, dead letters, models and claims. It is for backends and operators: its
// calls are those of routers, and a mesh with authentication wants a certificate for them.
//
//	conn, err := grpc.NewClient("127.0.0.1:7401", grpc.WithTransportCredentials(insecure.NewCredentials()))
//	…
//	for s, err := range admin.New(conn).Sessions(ctx, "ann") {
//
// Errors are a *pushmesh.Error, as everywhere in the SDK, and wrap that of a context that ended.
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Client calls a router, or whichever of several its connection takes. It is safe for concurrent
// use, and holds nothing that is to be closed.
//
// What only asks is asked again after a refusal that trying again can help, until its context ends.
// What changes something is called once: its caller knows whether it may be done twice.
type Client struct {
	namespaces  pushmeshv1.NamespaceServiceClient
	presence    pushmeshv1.PresenceServiceClient
	history     pushmeshv1.HistoryServiceClient
	sessions    pushmeshv1.SessionServiceClient
	deadLetters pushmeshv1.DeadLetterServiceClient
	ranks       pushmeshv1.RankServiceClient
	claims      pushmeshv1.ClaimServiceClient
}

// New is a client over a gRPC connection to routers, which stays the caller's.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		namespaces: pushmeshv1.NewNamespaceServiceClient(conn), presence: pushmeshv1.NewPresenceServiceClient(conn),
		history: pushmeshv1.NewHistoryServiceClient(conn), sessions: pushmeshv1.NewSessionServiceClient(conn),
		deadLetters: pushmeshv1.NewDeadLetterServiceClient(conn), ranks: pushmeshv1.NewRankServiceClient(conn),
		claims: pushmeshv1.NewClaimServiceClient(conn),
	}
}

// Incomplete is the error behind an answer in which edges are missing that did not answer in time.
type Incomplete struct {
	// Edges that are missing.
	Edges int
}

func (e *Incomplete) Error() string {
	return fmt.Sprintf("pushmesh: %d edges did not answer in time: what they know is missing", e.Edges)
}

// The pauses of what is asked again.
const (
	lowPause  = 100 * time.Millisecond
	highPause = 5 * time.Second
)

// ask calls f, and again while that can help and ctx lasts.
func ask[Req, Resp any](ctx context.Context, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	wait := reconnect.Backoff{Low: lowPause, High: highPause}
	for {
		resp, err := f(ctx, req)
		if err == nil {
			return resp, nil
		}
		err = ext.Fault(ctx, err)
		var refused *pushmesh.Error
		if ctx.Err() != nil || !errors.As(err, &refused) || !refused.Retryable() {
			return resp, err
		}
		if reconnect.Pause(ctx, wait.Next(refused.RetryAfter)); ctx.Err() != nil {
			return resp, fmt.Errorf("%w, after %w", ctx.Err(), err)
		}
	}
}

// change calls f once.
func change[Req, Resp any](ctx context.Context, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	resp, err := f(ctx, req)
	if err != nil {
		err = ext.Fault(ctx, err)
	}
	return resp, err
}

// pages yields what pages have: page asks for the one of a token, and returns its items and the
// next token, "" behind the last.
func pages[T any](page func(token string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			items, next, err := page(token)
			for _, it := range items {
				if !yield(it, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// pageSize is how many a page has at most.
const pageSize = 1000

// mapped is f of each.
func mapped[A, B any](all []A, f func(A) B) []B {
	if len(all) == 0 {
		return nil
	}
	out := make([]B, len(all))
	for i, a := range all {
		out[i] = f(a)
	}
	return out
}

// timeOf is the time of microseconds since 1970; the zero Time for 0.
func timeOf(micros uint64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(micros))
}

// duration is nil for 0, which is the mesh's default.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func stampOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func idOf(b []byte) (id pushmesh.ID) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
