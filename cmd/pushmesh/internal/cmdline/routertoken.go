package cmdline

import (
	"context"
	"strings"

	"google.golang.org/grpc"
)

// RouterTokenFlag is the flags of what is shown to routers. It is apart from TokenFlag, for a
// backend is no user: an edge is not shown a backend's key, nor a router a user's token.
type RouterTokenFlag struct {
	RouterTokenFile string `name:"router-token-file" env:"PUSHMESH_ROUTER_TOKEN_FILE" placeholder:"FILE" help:"Prove who you are to routers with the API key or token (JWT) in this file, which is read for each call."`
	RouterToken     string `name:"router-token" env:"PUSHMESH_ROUTER_TOKEN" placeholder:"KEY" help:"The API key or token itself. Whoever may list processes reads it: rather use the variable PUSHMESH_ROUTER_TOKEN, or --router-token-file."`
}

// options show the key or token with each call; none where no flag has any.
func (f RouterTokenFlag) options() ([]grpc.DialOption, error) {
	switch {
	case f.RouterTokenFile == "" && f.RouterToken == "":
		return nil, nil
	case f.RouterTokenFile == "-":
		return nil, Usage("--router-token-file needs a file: standard input is read once, and the key for each call")
	case f.RouterTokenFile == "":
		text := strings.TrimSpace(f.RouterToken)
		if text == "" || strings.ContainsAny(text, " \t\r\n") {
			return nil, Usage("--router-token is no key and no token: it has nothing, or spaces, in it")
		}
		return []grpc.DialOption{grpc.WithPerRPCCredentials(shown(func() (string, error) { return text, nil }))}, nil
	}
	if _, err := ReadToken(f.RouterTokenFile, nil); err != nil {
		return nil, Usage("--router-token-file: %w", err)
	}
	return []grpc.DialOption{grpc.WithPerRPCCredentials(shown(func() (string, error) { return ReadToken(f.RouterTokenFile, nil) }))}, nil
}

// shown is what each call shows.
type shown func() (string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (s shown) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := s()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: a mesh on loopback has no TLS.
func (shown) RequireTransportSecurity() bool { return false }
