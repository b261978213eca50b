package playground

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Where the page plays. Topics and resources are named in the page's sources, too.
const (
	playPrefix   = "play"
	pricesPrefix = "play/prices"
	pricesTopic  = "play/prices"
)

// taste is how prices are ranked: by what a profile likes, and the more so the more a price moves.
const taste = "(features.tech * profile.tech + features.energy * profile.energy + features.food * profile.food) * (0.2 + features.move)"

// policies of the namespaces.
func policies() map[string]*pushmeshv1.Policy {
	return map[string]*pushmeshv1.Policy{
		// A chat of clients among themselves, and a seat that they claim.
		playPrefix: {
			Durable:        true,
			Presence:       true,
			ClientPublish:  true,
			ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS,
			// Short, so that who is cut off loses the seat while somebody looks.
			Claims: &pushmeshv1.ClaimPolicy{Clients: true, Ttl: durationpb.New(10 * time.Second), Grace: durationpb.New(5 * time.Second)},
		},
		// Prices have no history: only the newest counts.
		pricesPrefix: {
			Presence: true,
			Rank: &pushmeshv1.RankPolicy{
				Window:     durationpb.New(250 * time.Millisecond),
				Deadline:   durationpb.New(500 * time.Millisecond),
				Rest:       pushmeshv1.RankPolicy_REST_SKIP,
				Expression: &pushmeshv1.ExpressionScorer{Expression: taste},
			},
		},
	}
}

// prepare makes the namespaces. One that is as it should be is left alone.
func prepare(ctx context.Context, conn *grpc.ClientConn) error {
	service := pushmeshv1.NewNamespaceServiceClient(conn)
	for prefix, want := range policies() {
		is, err := service.Get(ctx, &pushmeshv1.NamespaceServiceGetRequest{Prefix: prefix})
		switch {
		case err == nil && proto.Equal(is.GetNamespace().GetPolicy(), want):
			continue
		case err != nil && status.Code(err) != codes.NotFound:
			return fmt.Errorf("namespace %s: %w", prefix, err)
		}
		if _, err := service.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: want}}); err != nil {
			return fmt.Errorf("namespace %s: %w", prefix, err)
		}
	}
	return nil
}
