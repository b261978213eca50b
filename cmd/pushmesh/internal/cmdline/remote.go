package cmdline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/internal/code"
)

// CallTimeout bounds one call to a router.
const CallTimeout = 15 * time.Second

// RouterFlag is the flags of commands that call a router.
type RouterFlag struct {
	Router []string `env:"PUSHMESH_ROUTER" default:"127.0.0.1:7401" placeholder:"HOST:PORT" help:"Routers, separated by commas (${default})."`
	RouterTokenFlag
	TLSFlags
}

// DialOptions check the flags, and are for every connection to a router.
func (f RouterFlag) DialOptions() ([]grpc.DialOption, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	creds, err := f.Credentials()
	if err != nil {
		return nil, err
	}
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	return append(options, grpc.WithTransportCredentials(creds)), nil
}

// EdgeFlag is the flag of commands that connect to an edge.
type EdgeFlag struct {
	Edge []string `env:"PUSHMESH_EDGE" default:"127.0.0.1:7400" placeholder:"HOST:PORT" help:"Edges, separated by commas (${default})."`
}

// Dial makes a connection to the first router.
func (f RouterFlag) Dial() (*grpc.ClientConn, error) {
	options, err := f.DialOptions()
	if err != nil {
		return nil, err
	}
	addr := f.Router[0]
	conn, err := grpc.NewClient(addr, append(plainFaults(addr), options...)...)
	if err != nil {
		return nil, Usage("--router %s: %v", addr, err)
	}
	return conn, nil
}

// Check refuses routers that can't be dialled.
func (f RouterFlag) Check() error { return checkAddrs("router", f.Router, "127.0.0.1:7401") }

// Check refuses edges that can't be dialled.
func (f EdgeFlag) Check() error { return checkAddrs("edge", f.Edge, "127.0.0.1:7400") }

// checkAddrs refuses what is no HOST:PORT. What gRPC has a scheme for ("unix:…") is its own matter.
func checkAddrs(flag string, addrs []string, like string) error {
	if len(addrs) == 0 {
		return Usage("--%s is empty: it needs host:port, like %s", flag, like)
	}
	for _, addr := range addrs {
		if scheme, _, found := strings.Cut(addr, ":"); flag == "router" && found && resolver.Get(scheme) != nil {
			continue
		}
		_, port, err := net.SplitHostPort(addr)
		if err == nil {
			_, err = net.LookupPort("tcp", port) // a number up to 65535, or the name of one
		}
		if err != nil || port == "" || strings.Contains(addr, "://") {
			return Usage("--%s %q: it needs host:port, like %s", flag, addr, like)
		}
	}
	return nil
}

// plainFaults has what gRPC says of a connection to addr that can't be made said plainly.
func plainFaults(addr string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return survey.Plain(addr, invoke(ctx, method, req, reply, cc, opts...))
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, opts...)
			return s, survey.Plain(addr, err)
		}),
	}
}

// Call calls a service of a router, within a time; 0: as long as ctx.
func Call[Client any](
	ctx context.Context, f RouterFlag, within time.Duration, service func(grpc.ClientConnInterface) Client, call func(context.Context, Client) error,
) error {
	conn, err := f.Dial()
	if err != nil {
		return err
	}
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return errors.Join(call(ctx, service(conn)), conn.Close())
}

// Pages asks for a list page by page until limit is reached, or the end; 0: no limit. ask says how
// many there were, and how the next page is asked for.
func Pages(limit, page int, ask func(n uint32, token string) (got int, next string, err error)) error {
	token := ""
	for left := limit; ; {
		n := page
		if limit > 0 {
			n = min(left, page)
		}
		got, next, err := ask(uint32(n), token)
		if err != nil {
			return err
		}
		left -= got
		if token = next; token == "" || limit > 0 && left <= 0 {
			return nil
		}
	}
}

// Again watches until ctx ends, which is no failure. A watch that ends with an error that is worth
// another try begins again.
func Again(ctx context.Context, stdio IO, worth func(*code.Error) bool, watch func() error) error {
	for {
		err := watch()
		if ctx.Err() != nil {
			return nil // interrupted: that is how it ends
		}
		e := code.From(err)
		if e == nil || !worth(e) {
			return err
		}
		fmt.Fprintf(stdio.Err, "pushmesh: %s: watching again\n", Explain(err))
		select {
		case <-time.After(max(e.RetryAfter, 100*time.Millisecond)):
		case <-ctx.Done():
			return nil
		}
	}
}
