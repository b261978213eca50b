package cli

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
)

// callTimeout bounds one call to a router.
const callTimeout = 15 * time.Second

// routerFlag is the flag of commands that call a router.
type routerFlag struct {
	Router []string `env:"PUSHMESH_ROUTER" default:"127.0.0.1:7401" placeholder:"HOST:PORT" help:"Routers, separated by commas (${default})."`
}

// edgeFlag is the flag of commands that connect to an edge.
type edgeFlag struct {
	Edge []string `env:"PUSHMESH_EDGE" default:"127.0.0.1:7400" placeholder:"HOST:PORT" help:"Edges, separated by commas (${default})."`
}

func (f routerFlag) dial() (*grpc.ClientConn, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	addr := f.Router[0]
	conn, err := grpc.NewClient(addr, append(plainFaults(addr), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, usage("--router %s: %v", addr, err)
	}
	return conn, nil
}

func (f routerFlag) check() error { return checkAddrs("router", f.Router, "127.0.0.1:7401") }

func (f edgeFlag) check() error { return checkAddrs("edge", f.Edge, "127.0.0.1:7400") }

// checkAddrs refuses what is no HOST:PORT. What gRPC has a scheme for ("unix:…") is its own matter.
func checkAddrs(flag string, addrs []string, like string) error {
	if len(addrs) == 0 {
		return usage("--%s is empty: it needs host:port, like %s", flag, like)
	}
	for _, addr := range addrs {
		if scheme, _, found := strings.Cut(addr, ":"); flag == "router" && found && resolver.Get(scheme) != nil {
			continue
		}
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" || strings.Contains(addr, "://") {
			return usage("--%s %q: it needs host:port, like %s", flag, addr, like)
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

// keyValues reads k=v pairs of a repeated flag.
func keyValues(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("--%s %q: it must be NAME=VALUE", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// numbers reads NAME=NUMBER of a flag that may be given often.
func numbers(flag string, pairs []string) (map[string]float64, error) {
	texts, err := keyValues(flag, pairs)
	if len(texts) == 0 {
		return nil, err
	}
	out := make(map[string]float64, len(texts))
	for name, text := range texts {
		if out[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, usage("--%s %s: %q is not a number", flag, name, text)
		}
	}
	return out, nil
}
