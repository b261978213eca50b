package cli

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
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
	if len(f.Router) == 0 || f.Router[0] == "" {
		return nil, usage("--router is empty")
	}
	conn, err := grpc.NewClient(f.Router[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, usage("--router %s: %v", f.Router[0], err)
	}
	return conn, nil
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
			return nil, usage("--%s %q: NAME=VALUE", flag, p)
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
			return nil, usage("--%s %s: %q is no number", flag, name, text)
		}
	}
	return out, nil
}
