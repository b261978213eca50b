package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// applyTimeout is how long the router that changed the namespaces waits until all processes use the
// change. Most have it after some milliseconds.
const applyTimeout = 2 * time.Second

// mostAsking is how many questions may wait for an answer; further ones get none.
const mostAsking = 64

// AwaitVersion waits, for two seconds at most, until this process and nodes use a version of the
// namespaces, or a newer one. It returns those that do not, as far as is known. nodes are named as
// by bus.Node; this process may be among them.
func (w *Watch) AwaitVersion(ctx context.Context, version uint64, nodes []string) (lagging []string) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	if !slices.Contains(nodes, w.node) {
		nodes = append(slices.Clone(nodes), w.node)
	}
	for _, node := range nodes {
		all.Go(func() {
			ask := w.askNode
			if node == w.node {
				ask = func(ctx context.Context, _ string, version uint64) error { return w.await(ctx, version) }
			}
			if err := ask(ctx, node, version); err != nil {
				w.log.Warn("a process may still use older namespaces", "node", node, "version", version, "error", err)
				mu.Lock()
				defer mu.Unlock()
				lagging = append(lagging, node)
			}
		})
	}
	all.Wait()
	slices.Sort(lagging)
	return lagging
}

func (w *Watch) askNode(ctx context.Context, node string, version uint64) error {
	if w.bus == nil {
		return fmt.Errorf("%s can't be asked without NATS", node)
	}
	data, err := proto.Marshal(&meshv1.ListNamespacesRequest{HaveVersion: version})
	if err != nil {
		return fmt.Errorf("ask for the version of %s: %w", node, err)
	}
	_, err = w.bus.Request(ctx, bus.NamespacesAt(node), data)
	return err
}

// question is one of another process, which waits until this one uses a version.
type question struct {
	version uint64
	respond func([]byte) error
	until   time.Time
}

// answerWhenApplied answers a question of askNode once this process uses the version, and not at
// all if that takes too long.
func (w *Watch) answerWhenApplied(data []byte, respond func([]byte) error) {
	req := &meshv1.ListNamespacesRequest{}
	if proto.Unmarshal(data, req) != nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	w.asking = slices.DeleteFunc(w.asking, func(q question) bool { return now.After(q.until) })
	if len(w.asking) < mostAsking {
		w.asking = append(w.asking, question{req.GetHaveVersion(), respond, now.Add(applyTimeout)})
	}
	w.mu.Unlock()
	w.pace.Note(req.GetHaveVersion())
	w.answerApplied()
}

// answerApplied answers the questions about versions that apply now.
func (w *Watch) answerApplied() {
	w.mu.Lock()
	var due []question
	w.asking = slices.DeleteFunc(w.asking, func(q question) bool {
		if q.version <= w.applied {
			due = append(due, q)
			return true
		}
		return false
	})
	w.mu.Unlock()
	for _, q := range due {
		if err := q.respond(nil); err != nil {
			w.log.Debug("answering another process about the version of the namespaces failed", "version", q.version, "error", err)
		}
	}
}

// await waits until the table that applies has a version, or a newer one. A caller that names a
// version knows that it exists.
func (w *Watch) await(ctx context.Context, version uint64) error {
	for {
		w.mu.Lock()
		applied, changed := w.applied, w.changed
		w.mu.Unlock()
		if applied >= version {
			return nil
		}
		w.pace.Note(version)
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("namespaces: version %d applies here, not %d: %w", applied, version, ctx.Err())
		}
	}
}
