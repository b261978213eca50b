package promise

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// router is one router's API.
type router struct {
	conn       *grpc.ClientConn
	publish    pushmeshv1.PublishServiceClient
	history    pushmeshv1.HistoryServiceClient
	namespaces pushmeshv1.NamespaceServiceClient
	letters    pushmeshv1.DeadLetterServiceClient
	sessions   pushmeshv1.SessionServiceClient
}

func dial(addr string) (router, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return router{
		conn: conn, publish: pushmeshv1.NewPublishServiceClient(conn), history: pushmeshv1.NewHistoryServiceClient(conn),
		namespaces: pushmeshv1.NewNamespaceServiceClient(conn), letters: pushmeshv1.NewDeadLetterServiceClient(conn),
		sessions: pushmeshv1.NewSessionServiceClient(conn),
	}, err
}

// ask repeats a call at one router after the other until it succeeds or ctx ends.
func (p *Play) ask(ctx context.Context, call func(context.Context, router) error) error {
	try := 0
	return insist(ctx, func(ctx context.Context) error {
		try++
		r, err := dial(p.Routers[try%len(p.Routers)])
		if err != nil {
			return err
		}
		defer func() { _ = r.conn.Close() }()
		return call(ctx, r)
	})
}
