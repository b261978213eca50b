package computeclient

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// silentJobs that timed out one after the other make a node silent.
	silentJobs = 3
	// probeEvery is how often a silent node gets a job.
	probeEvery = 500 * time.Millisecond
	// retryAfter is between two attempts to open a stream; gRPC paces the connection's own.
	retryAfter = 200 * time.Millisecond
	// maxBatch bytes of jobs that leave together.
	maxBatch = 1 << 20
)

type jobStream = grpc.BidiStreamingClient[meshv1.RankJobsRequest, meshv1.RankJobsResponse]

// brokenError says that a node went away before it answered.
type brokenError struct{ why *code.Error }

func (b *brokenError) Error() string { return b.why.Error() }
func (b *brokenError) Unwrap() error { return b.why }

// node is one compute node: run opens a stream again and again, sends what waits in it, and a
// goroutine of the stream takes the answers.
type node struct {
	conn   *grpc.ClientConn
	client *Client
	wake   chan struct{} // 1: something waits

	mu       sync.Mutex
	open     bool // there is a stream
	packed   bool // whose node takes packed candidates
	ref      uint64
	waiting  []*place
	underWay map[uint64]*place // sent or waiting
	left     []uint64          // sent, and nobody waits for them
	bytes    int
	timeouts int // one after the other
	probed   time.Time
}

// place is a call at a node.
type place struct {
	ref    uint64
	call   *call
	form   *form
	sent   time.Time
	answer chan answer // 1
}

type answer struct {
	resp *meshv1.RankJobResponse
	err  error
}

func newNode(conn *grpc.ClientConn, c *Client) *node {
	return &node{conn: conn, client: c, wake: make(chan struct{}, 1), underWay: map[uint64]*place{}}
}

func (n *node) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

// load says how busy a node is.
type load struct {
	silent bool
	bytes  int
	jobs   int
}

func (l load) less(o load) bool {
	switch {
	case l.silent != o.silent:
		return !l.silent
	case l.bytes != o.bytes:
		return l.bytes < o.bytes
	}
	return l.jobs < o.jobs
}

// load is not ok where the node can't be asked. A silent node whose probe is due counts as idle.
func (n *node) load(now time.Time) (l load, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.open {
		return load{}, false
	}
	if n.timeouts >= silentJobs {
		if now.Sub(n.probed) >= probeEvery {
			return load{}, true
		}
		return load{silent: true}, true
	}
	return load{bytes: n.bytes, jobs: len(n.underWay)}, true
}

func (n *node) picked(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probed = now
}

// do has a call done here.
func (n *node) do(ctx context.Context, c *call) (*meshv1.RankJobResponse, error) {
	n.mu.Lock()
	packed := n.packed
	n.mu.Unlock()
	f, err := c.form(packed)
	if err != nil {
		return nil, err
	}
	if f.large() {
		return n.alone(ctx, c, f)
	}
	p, err := n.put(c, f)
	if err != nil {
		return nil, err
	}
	select {
	case a := <-p.answer:
		return a.resp, a.err
	case <-ctx.Done():
		n.leave(p)
		return nil, context.Cause(ctx)
	}
}

// alone has a call done that shares no stream.
func (n *node) alone(ctx context.Context, c *call, f *form) (*meshv1.RankJobResponse, error) {
	resp, err := meshv1.NewComputeServiceClient(n.conn).RankJob(ctx, c.timed(f, time.Now()))
	if e := code.From(err); e != nil && e.Code == wirev1.Code_CODE_UNAVAILABLE && ctx.Err() == nil {
		return nil, &brokenError{e}
	}
	if err != nil {
		return nil, err
	}
	return c.take(f, resp)
}

func (n *node) put(c *call, f *form) (*place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.open || f.request.GetPacked() != nil && !n.packed: // it was another stream's
		return nil, broken("the node is not connected")
	case len(n.underWay) >= maxUnderWay || n.bytes > 0 && n.bytes+f.size > maxBytes:
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, 100*time.Millisecond, "too many jobs are under way")
	}
	n.ref++
	p := &place{ref: n.ref, call: c, form: f, sent: time.Now(), answer: make(chan answer, 1)}
	n.underWay[p.ref] = p
	n.bytes += f.size
	n.waiting = append(n.waiting, p)
	n.awake()
	return p, nil
}

func (n *node) awake() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// leave forgets a call whose caller has gone.
func (n *node) leave(p *place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.underWay[p.ref] != p {
		return
	}
	n.remove(p)
	n.timeouts++
	if !slices.Contains(n.waiting, p) {
		n.left = append(n.left, p.ref)
		n.awake()
	}
}

func (n *node) remove(p *place) {
	delete(n.underWay, p.ref)
	n.bytes -= p.form.size
}

// run keeps a stream open until ctx ends.
func (n *node) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.conn.Connect()
		n.stream(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// stream lives as long as one stream does.
func (n *node) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := meshv1.NewComputeServiceClient(n.conn).RankJobs(ctx, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		return
	}
	n.mu.Lock()
	n.open, n.timeouts = true, 0
	n.mu.Unlock()
	n.client.first.Do(func() { close(n.client.begun) })
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel()
		n.read(s)
	}()
	n.write(ctx, s)
	cancel()
	<-read
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open, n.packed, n.waiting, n.left = false, false, nil, nil
	for _, p := range n.underWay {
		n.remove(p)
		p.answer <- answer{err: broken("the connection to the compute node ended")}
	}
}

func broken(why string) error {
	return &brokenError{code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, why)}
}

// write sends what waits, together.
func (n *node) write(ctx context.Context, s jobStream) {
	for {
		req := n.batch()
		if len(req.GetItems())+len(req.GetCancel()) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-n.wake:
			}
			continue
		}
		if s.Send(req) != nil {
			return
		}
	}
}

func (n *node) batch() *meshv1.RankJobsRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	req := &meshv1.RankJobsRequest{Cancel: n.left}
	n.left = nil
	size, taken := 0, 0
	for _, p := range n.waiting {
		if size > 0 && size+p.form.size > maxBatch {
			break
		}
		taken++
		if n.underWay[p.ref] == nil {
			continue // its caller has left
		}
		size += p.form.size
		req.Items = append(req.Items, &meshv1.RankJobsRequest_Item{Ref: p.ref, Job: p.call.timed(p.form, time.Now())})
	}
	rest := copy(n.waiting, n.waiting[taken:])
	clear(n.waiting[rest:])
	n.waiting = n.waiting[:rest]
	return req
}

func (n *node) read(s jobStream) {
	for {
		resp, err := s.Recv()
		if err != nil {
			return
		}
		if resp.GetTakesPacked() {
			n.mu.Lock()
			n.packed = true
			n.mu.Unlock()
		}
		for _, it := range resp.GetItems() {
			n.answered(it)
		}
	}
}

func (n *node) answered(it *meshv1.RankJobsResponse_Item) {
	n.mu.Lock()
	n.timeouts = 0
	p := n.underWay[it.GetRef()]
	if p == nil {
		n.mu.Unlock()
		return
	}
	n.remove(p)
	n.mu.Unlock()
	if it.GetCode() != wirev1.Code_CODE_OK {
		err := code.Retry(it.GetCode(), time.Duration(it.GetRetryAfterMs())*time.Millisecond, it.GetError())
		if it.GetCode() == wirev1.Code_CODE_UNAVAILABLE { // it stops
			p.answer <- answer{err: &brokenError{err}}
			return
		}
		p.answer <- answer{err: err}
		return
	}
	n.client.ships.learn(p.form, time.Since(p.sent), it.GetJob())
	resp, err := p.call.take(p.form, it.GetJob())
	p.answer <- answer{resp, err}
}
