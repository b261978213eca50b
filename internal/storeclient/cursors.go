package storeclient

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// bytesPerWrite bounds one WriteCursors call; a single larger write goes alone.
const bytesPerWrite = 1 << 20

// WriteCursors splits the writes by owner and answers with their codes in order. A write whose
// owner can't be reached has the code of that error (UNAVAILABLE: keep it and try again), the
// others stand. An error is returned only where no write was answered.
func (c *Client) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	resp := &meshv1.WriteCursorsResponse{Codes: make([]wirev1.Code, len(req.GetWrites()))}
	all := make([]int, len(req.GetWrites()))
	for i := range all {
		all[i] = i
	}
	moved, answered, err := c.writeSome(ctx, req.GetWrites(), all, resp.GetCodes())
	if len(moved) > 0 { // their owner changed
		if refreshErr := c.Refreshed(ctx); refreshErr == nil {
			var again int
			_, again, err = c.writeSome(ctx, req.GetWrites(), moved, resp.GetCodes())
			answered += again
		}
		for _, i := range moved {
			if resp.GetCodes()[i] == wirev1.Code_CODE_CONFLICT {
				resp.Codes[i] = wirev1.Code_CODE_UNAVAILABLE
			}
		}
	}
	if err != nil && answered == 0 {
		return nil, err
	}
	return resp, nil
}

// part of the writes for one owner, by index.
type part struct {
	owner string
	stub  meshv1.StoreServiceClient
	which []int
	bytes int
}

// writeSome sends the writes that which names and fills in their codes: moved are those refused
// because another store owns them now, answered counts those that a store answered, err is one of
// the errors.
func (c *Client) writeSome(ctx context.Context, writes []*meshv1.SessionWrite, which []int, codes []wirev1.Code) (moved []int, answered int, err error) {
	parts, err := c.split(writes, which, codes)
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, p := range parts {
		wg.Go(func() {
			failed := c.writePart(ctx, writes, p, codes)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil:
				for _, i := range p.which {
					if codes[i] == wirev1.Code_CODE_CONFLICT {
						moved = append(moved, i)
					}
				}
				answered += len(p.which)
			case code.Of(failed) == wirev1.Code_CODE_CONFLICT:
				moved = append(moved, p.which...)
				err = failed
			default:
				err = failed
			}
		})
	}
	wg.Wait()
	return moved, answered, err
}

func (c *Client) split(writes []*meshv1.SessionWrite, which []int, codes []wirev1.Code) (parts []*part, err error) {
	open := map[string]*part{} // by owner
	for _, i := range which {
		w := writes[i]
		addr, stub, ownerErr := c.Owner(topic.SessionShard(w.GetUser(), w.GetName()))
		if ownerErr != nil {
			codes[i], err = code.Of(ownerErr), ownerErr
			continue
		}
		size := proto.Size(w)
		p := open[addr]
		if p == nil || p.bytes+size > bytesPerWrite {
			p = &part{owner: addr, stub: stub}
			open[addr] = p
			parts = append(parts, p)
		}
		p.which = append(p.which, i)
		p.bytes += size
	}
	return parts, err
}

func (c *Client) writePart(ctx context.Context, writes []*meshv1.SessionWrite, p *part, codes []wirev1.Code) error {
	req := &meshv1.WriteCursorsRequest{Writes: make([]*meshv1.SessionWrite, len(p.which))}
	for k, i := range p.which {
		req.Writes[k] = writes[i]
	}
	here, done := c.whileOwned(ctx, p.owner, topic.SessionShard(req.GetWrites()[0].GetUser(), req.GetWrites()[0].GetName()))
	resp, err := p.stub.WriteCursors(here, req)
	if done() && err != nil && ctx.Err() == nil {
		err = code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shards now")
	}
	if err == nil && len(resp.GetCodes()) != len(p.which) {
		err = code.New(wirev1.Code_CODE_INTERNAL, "the store answered for another number of writes")
	}
	c.noticed(err)
	for k, i := range p.which {
		if err != nil {
			codes[i] = code.Of(err)
		} else {
			codes[i] = resp.GetCodes()[k]
		}
	}
	return err
}

// whileOwned is a context for a call to a shard's owner, which ends as well when another store is
// known to own the shard: a call to one that was fenced because it hangs would hold up what its
// successor takes at once. One shard speaks for all: those of a store that hangs are taken
// together. done ends it, and reports whether the owner changed.
func (c *Client) whileOwned(ctx context.Context, owner string, shard int) (here context.Context, done func() (moved bool)) {
	here, cancel := context.WithCancel(ctx)
	watched := make(chan bool, 1)
	go func() {
		for {
			changed := c.Changed()
			if now := c.OwnerOf(shard); now != owner && now != "" {
				watched <- true
				cancel()
				return
			}
			select {
			case <-changed:
			case <-here.Done():
				watched <- false
				return
			}
		}
	}()
	return here, func() bool {
		cancel()
		return <-watched
	}
}
