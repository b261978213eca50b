package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/readiness"
)

// pause between two tries of what is waited for.
const pause = 20 * time.Millisecond

// Ready waits until the process is ready and misses nothing; its early end is an error.
func (p *Process) Ready(ctx context.Context) error {
	var err error
	if p.HTTP != "" {
		err = readiness.Await(ctx, p.HTTP, p.Done())
	} else {
		err = p.listens(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; its log %s ends: %s", p.Name, err, p.Log, p.Tail(2000))
	}
	return nil
}

// listens waits until the process takes connections.
func (p *Process) listens(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Done():
			return errors.New("ended before it was ready")
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Get asks the process's HTTP server once, that of Profiles for what begins with /debug/pprof/;
// what it answers with another status than 200 is an error.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	status, body, err := p.ask(ctx, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s of %s: status %d", path, p.Name, status)
	}
	return body, err
}

func (p *Process) ask(ctx context.Context, path string) (status int, body []byte, err error) {
	at := p.HTTP
	if strings.HasPrefix(path, "/debug/pprof/") {
		at = p.Profiles
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// Status asks /readyz?verbose once; 0 where nobody answers.
func (p *Process) Status() (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	status, text, err := p.ask(ctx, "/readyz?verbose")
	if err != nil {
		return 0, err.Error()
	}
	return status, string(text)
}

// Metrics are the process's, by name and labels.
func (p *Process) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				all[name] = v
			}
		}
	}
	return all, nil
}

// stoppedWithin bounds how long a process may take to stand still after SIGSTOP.
const stoppedWithin = 2 * time.Minute

// awaitStopped waits until every thread of a process that was sent SIGSTOP stands still, or none is
// left.
func awaitStopped(pid int) {
	for deadline := time.Now().Add(stoppedWithin); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		moving := false
		for _, path := range stats {
			stat, err := os.ReadFile(path) // #nosec G304 -- of a child
			_, state, found := bytes.Cut(stat, []byte(") "))
			moving = moving || err == nil && found && !bytes.ContainsAny(state[:1], "TZX")
		}
		if !moving {
			return
		}
	}
}
