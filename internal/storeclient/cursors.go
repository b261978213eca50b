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

// WriteCursors splits the writes by owner and answers with their codes in order. A write whose owner can't be reached has the code of
// that error (UNAVAILABLE: keep it and try again), the others stand. An error is returned only where no write was answered.
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
	stub  meshv1.StoreServiceClient
	which []int
	bytes int
}

// writeSome sends the writes that which names and fills in their codes: moved are those refused because another store owns them
// now, answered counts those that a store answered, err is one of the errors.
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
			p = &part{stub: stub}
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
	resp, err := p.stub.WriteCursors(ctx, req)
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
