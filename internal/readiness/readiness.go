// Package readiness asks a tier over HTTP whether it is ready and misses nothing.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	pause = 10 * time.Millisecond
	// mostText bounds what is read of an answer.
	mostText = 64 << 10
)

// Await asks until the tier at addr is ready and nothing is degraded: what is published or
// subscribed from then on is not refused. It gives up with ctx, or when ended is closed (nil:
// never), and says then what was missing.
func Await(ctx context.Context, addr string, ended <-chan struct{}) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := Ask(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// Ask asks once; the error names what is missing.
func Ask(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostText))
	if err != nil {
		return err
	}
	return judge(answer.StatusCode, string(text))
}

// judge says what an answer of /readyz?verbose lacks.
func judge(status int, text string) error {
	var lacks []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, ": missing: ") || strings.Contains(line, ": degraded: ") {
			lacks = append(lacks, strings.TrimSpace(line))
		}
	}
	if status != http.StatusOK || len(lacks) > 0 {
		return fmt.Errorf("/readyz says %d: %s", status, strings.Join(lacks, ", "))
	}
	return nil
}
