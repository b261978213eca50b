package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// TokenFlag is the flag of commands that connect to an edge as a client. A token is never an
// argument itself: everybody on a host may list those of its processes.
type TokenFlag struct {
	TokenFile string `name:"token-file" env:"PUSHMESH_TOKEN_FILE" placeholder:"FILE" help:"Prove who you are to edges with the token (JWT) in this file, which is read for each connection; - reads standard input, once."`
}

// Source returns what reads the token for a connection; nil where no flag names one. It has read it
// once, so that a name that is wrong is told before anything is connected.
func (f TokenFlag) Source(in io.Reader) (func(context.Context) (string, error), error) {
	if f.TokenFile == "" {
		return nil, nil
	}
	first, err := ReadToken(f.TokenFile, in)
	if err != nil {
		return nil, Usage("--token-file: %w", err)
	}
	if f.TokenFile == "-" {
		return func(context.Context) (string, error) { return first, nil }, nil
	}
	return func(context.Context) (string, error) { return ReadToken(f.TokenFile, nil) }, nil
}

// ReadToken reads a token of token.MaxToken bytes at most, and space around it, from a file, or
// from in where path is "-". Its errors hold nothing of what it read.
func ReadToken(path string, in io.Reader) (string, error) {
	if path != "-" {
		f, err := os.Open(path) // #nosec G304 -- who runs the command names it
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	} else if path = "standard input"; in == nil {
		return "", errors.New("standard input is closed")
	}
	const room = 64 // for space around it
	text, err := io.ReadAll(io.LimitReader(in, token.MaxToken+room+1))
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(text))
	switch {
	case len(words) == 0:
		return "", fmt.Errorf("%s has no token in it", path)
	case len(words[0]) > token.MaxToken || len(text) > token.MaxToken+room:
		return "", fmt.Errorf("%s is longer than a token may be, which is %d bytes", path, token.MaxToken)
	case len(words) > 1:
		return "", fmt.Errorf("%s has more in it than one token", path)
	}
	return words[0], nil
}
