package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// probeTimeout bounds one probe; whoever runs it has a shorter or longer one of its own.
const probeTimeout = 5 * time.Second

// Command runs `health URL` where args ask for it, so that an image that holds one static binary
// and nothing else can say how it is. It is nil where the URL answers 200. asked is false for any
// other command.
func Command(ctx context.Context, args []string) (asked bool, err error) {
	if len(args) == 0 || args[0] != "health" {
		return false, nil
	}
	if len(args) != 2 {
		return true, errors.New("usage: health URL, like health http://127.0.0.1:7480/readyz")
	}
	return true, Probe(ctx, args[1])
}

// Probe asks url once; anything but 200 is an error that carries the answer's text.
func Probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
