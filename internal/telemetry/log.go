package telemetry

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// logQueue is how many lines may wait for whoever reads the log.
const logQueue = 1024

// logWriter is between the log and standard error, so that nobody who logs ever waits: a pipe that
// is not read would stop the whole process, one goroutine after the other. Lines beyond logQueue
// are dropped and counted.
type logWriter struct {
	out     io.Writer
	mu      sync.Mutex
	lines   [][]byte
	dropped uint64
	idle    chan struct{} // closed once nothing waits; nil while nothing does

	taken, written uint64        // lines, those that were dropped aside
	moved          chan struct{} // closed when written grows; nil: nobody waits for that
}

// Write takes one line, as slog's handlers write them.
func (w *logWriter) Write(line []byte) (int, error) { return w.take(line, logQueue) }

// reserve takes lines that no flood of others may push out: there is as much room again for them.
type reserve struct{ *logWriter }

func (r reserve) Write(line []byte) (int, error) { return r.take(line, 2*logQueue) }

func (w *logWriter) take(line []byte, most int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) >= most {
		w.dropped++
		return len(line), nil
	}
	w.lines = append(w.lines, bytes.Clone(line))
	w.taken++
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.drain()
	}
	return len(line), nil
}

// drain writes until nothing waits.
func (w *logWriter) drain() {
	for {
		w.mu.Lock()
		if len(w.lines) == 0 {
			close(w.idle)
			w.idle, w.lines = nil, nil
			w.mu.Unlock()
			return
		}
		line := w.lines[0]
		w.lines = w.lines[1:]
		w.mu.Unlock()
		_, _ = w.out.Write(line) // a log that can't be written can't be complained of
		w.mu.Lock()
		w.written++
		if w.moved != nil {
			close(w.moved)
			w.moved = nil
		}
		w.mu.Unlock()
	}
}

// await waits until the lines that were taken so far are written. It reports false where ctx ended
// first.
func (w *logWriter) await(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for until := w.taken; w.written < until; {
		if w.moved == nil {
			w.moved = make(chan struct{})
		}
		moved := w.moved
		w.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			return w.written >= until
		}
	}
	return true
}

// flush waits until everything is written.
func (w *logWriter) flush(ctx context.Context) {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Dropped counts lines.
func (w *logWriter) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}
