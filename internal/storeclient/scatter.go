package storeclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// topicsPerCall keeps a question about heads below a gRPC message of 4 MiB.
const topicsPerCall = 4096

// Heads asks the owners of the topics named and, for filters, every owner. More than limit heads of
// topics that were not named (limit above 0) are TOO_MANY_TOPICS. Where a shard has no owner,
// filters can't be answered: UNAVAILABLE.
func (c *Client) Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error) {
	heads, err := c.heads(ctx, topics, filters, limit)
	if code.Of(err) == wirev1.Code_CODE_CONFLICT {
		if err := c.Refreshed(ctx); err != nil {
			return nil, err
		}
		heads, err = c.heads(ctx, topics, filters, limit)
	}
	return heads, err
}

func (c *Client) heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error) {
	byOwner := map[string][]string{}
	for _, t := range topics {
		addr, _, err := c.Owner(topic.Shard(t))
		if err != nil {
			return nil, err
		}
		byOwner[addr] = append(byOwner[addr], t)
	}
	if len(filters) > 0 {
		addrs, err := c.everyOwner()
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			if _, named := byOwner[addr]; !named {
				byOwner[addr] = nil
			}
		}
	}
	var calls []call[*meshv1.HeadsRequest]
	for addr, ts := range byOwner {
		first := &meshv1.HeadsRequest{Filters: filters, Limit: limit, Topics: ts[:min(len(ts), topicsPerCall)]}
		calls = append(calls, call[*meshv1.HeadsRequest]{addr, first})
		for more := range slices.Chunk(ts[len(first.GetTopics()):], topicsPerCall) {
			calls = append(calls, call[*meshv1.HeadsRequest]{addr, &meshv1.HeadsRequest{Topics: more}})
		}
	}
	resps, err := scatter(c, calls, func(stub meshv1.StoreServiceClient, req *meshv1.HeadsRequest) (*meshv1.HeadsResponse, error) {
		return stub.Heads(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	if len(filters) > 0 && !complete(resps) {
		return nil, c.incomplete()
	}
	return mergeHeads(resps, topics, limit)
}

// complete reports whether filters were compared with the topics of every shard: a store that is
// the owner as far as is known here may have loaded none of its shards yet, or have lost them.
func complete[R interface{ GetShards() []byte }](resps []R) bool {
	all := topic.NewShardSet()
	for _, resp := range resps {
		all.Union(resp.GetShards())
	}
	return all.Full()
}

// incomplete is the answer where it is not, and has the owners asked for again.
func (c *Client) incomplete() error {
	c.Refresh()
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "no store has loaded some of the shards now")
}

// later reports whether a head is newer than another of its topic: one store may not know yet that
// another has the shard.
func later(h, other *meshv1.Head) bool {
	return cmp.Or(cmp.Compare(h.GetEpoch(), other.GetEpoch()), cmp.Compare(h.GetHead(), other.GetHead())) > 0
}

func mergeHeads(resps []*meshv1.HeadsResponse, named []string, limit uint32) ([]*meshv1.Head, error) {
	const unseen = -1
	at := map[string]int{} // in heads
	for _, t := range named {
		at[t] = unseen
	}
	var heads []*meshv1.Head
	matched := 0
	for _, resp := range resps {
		for _, h := range resp.GetHeads() {
			i, known := at[h.GetTopic()]
			if known && i != unseen {
				if later(h, heads[i]) {
					heads[i] = h
				}
				continue
			}
			at[h.GetTopic()] = len(heads)
			heads = append(heads, h)
			if !known {
				matched++
			}
		}
	}
	if limit > 0 && matched > int(limit) {
		return nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, fmt.Sprintf("filters match more than %d topics", limit))
	}
	return heads, nil
}

// ListKept asks every owner, and merges the first topics of their pages by name: none behind the
// end of a page that another one follows. Where a shard has no owner: UNAVAILABLE.
func (c *Client) ListKept(ctx context.Context, req *meshv1.StoreServiceListKeptRequest) (*meshv1.StoreServiceListKeptResponse, error) {
	resps, err := everywhere(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceListKeptResponse, error) {
		return stub.ListKept(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	if !complete(resps) {
		return nil, c.incomplete()
	}
	out, end := &meshv1.StoreServiceListKeptResponse{}, ""
	for _, resp := range resps {
		out.Topics = append(out.Topics, resp.GetTopics()...)
		if n := len(resp.GetTopics()); resp.GetMore() && n > 0 {
			if last := resp.GetTopics()[n-1].GetTopic(); end == "" || last < end {
				end = last
			}
		}
	}
	// of a topic whose shard has moved meanwhile, what is newer
	slices.SortFunc(out.GetTopics(), func(a, b *meshv1.Head) int {
		return cmp.Or(strings.Compare(a.GetTopic(), b.GetTopic()), -cmp.Compare(a.GetEpoch(), b.GetEpoch()), -cmp.Compare(a.GetHead(), b.GetHead()))
	})
	out.Topics = slices.CompactFunc(out.GetTopics(), func(a, b *meshv1.Head) bool { return a.GetTopic() == b.GetTopic() })
	if end != "" {
		n, _ := slices.BinarySearchFunc(out.GetTopics(), end+"\x00", func(h *meshv1.Head, name string) int { return strings.Compare(h.GetTopic(), name) })
		out.Topics, out.More = out.GetTopics()[:n], true
	}
	if most := int(req.GetLimit()); most > 0 && len(out.GetTopics()) > most {
		out.Topics, out.More = out.GetTopics()[:most], true
	}
	return out, nil
}

// sessionsPerPage is what limit 0 means: merging needs the same limit everywhere.
const sessionsPerPage = 100

// ListSessions asks every owner and merges their pages, by user and name. The smallest of pages of
// one size are a page again, since none of them was cut before its own last.
func (c *Client) ListSessions(ctx context.Context, req *meshv1.ListSessionsRequest) (*meshv1.ListSessionsResponse, error) {
	limit := cmp.Or(int(req.GetLimit()), sessionsPerPage)
	req = &meshv1.ListSessionsRequest{User: req.GetUser(), Limit: uint32(limit), PageToken: req.GetPageToken(), Sizes: req.GetSizes()}
	resps, err := everywhere(c, func(stub meshv1.StoreServiceClient) (*meshv1.ListSessionsResponse, error) {
		return stub.ListSessions(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	if len(resps) == 1 {
		return resps[0], nil // its page, and its token
	}
	var all []*pushmeshv1.Session
	more := false
	for _, resp := range resps {
		all = append(all, resp.GetSessions()...)
		more = more || resp.GetNextPageToken() != ""
	}
	slices.SortFunc(all, func(a, b *pushmeshv1.Session) int {
		return cmp.Or(strings.Compare(a.GetUser(), b.GetUser()), strings.Compare(a.GetName(), b.GetName()))
	})
	all = slices.CompactFunc(all, func(a, b *pushmeshv1.Session) bool { return a.GetUser() == b.GetUser() && a.GetName() == b.GetName() })
	if len(all) > limit {
		all, more = all[:limit], true
	}
	out := &meshv1.ListSessionsResponse{Sessions: all}
	if more && len(all) > 0 {
		last := all[len(all)-1]
		out.NextPageToken = PageToken(last.GetUser(), last.GetName())
	}
	return out, nil
}

// PageToken says that a page of sessions, sorted by the bytes of (user, name), ended with this one.
// Every store makes and takes the same tokens, so that pages of several can be merged.
func PageToken(user, name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(user + "\x00" + name))
}

// ParsePageToken is the inverse of PageToken; "" is the beginning.
func ParsePageToken(token string) (user, name string, err error) {
	if token == "" {
		return "", "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	user, name, found := strings.Cut(string(raw), "\x00")
	if err != nil || !found {
		return "", "", code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is not one that an earlier answer had")
	}
	return user, name, nil
}

// ListDeadLetters asks every owner and merges the answers by id.
func (c *Client) ListDeadLetters(ctx context.Context, req *meshv1.ListDeadLettersRequest) (*meshv1.ListDeadLettersResponse, error) {
	resps, err := everywhere(c, func(stub meshv1.StoreServiceClient) (*meshv1.ListDeadLettersResponse, error) {
		return stub.ListDeadLetters(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	var all []*meshv1.DeadLetter
	for _, resp := range resps {
		all = append(all, resp.GetDeadLetters()...)
	}
	slices.SortFunc(all, func(a, b *meshv1.DeadLetter) int { return cmp.Compare(a.GetId(), b.GetId()) })
	all = slices.CompactFunc(all, func(a, b *meshv1.DeadLetter) bool { return a.GetId() == b.GetId() })
	if most := int(req.GetLimit()); most > 0 && len(all) > most {
		all = all[:most]
	}
	return &meshv1.ListDeadLettersResponse{DeadLetters: all}, nil
}

// DiscardDeadLetters asks every owner: each discards what it has.
func (c *Client) DiscardDeadLetters(ctx context.Context, req *meshv1.DiscardDeadLettersRequest) (*meshv1.DiscardDeadLettersResponse, error) {
	resps, err := everywhere(c, func(stub meshv1.StoreServiceClient) (*meshv1.DiscardDeadLettersResponse, error) {
		return stub.DiscardDeadLetters(ctx, req)
	})
	out := &meshv1.DiscardDeadLettersResponse{}
	for _, resp := range resps {
		out.Discarded += resp.GetDiscarded()
	}
	return out, err
}

// everyOwner is an error where a shard has none: the answer would lack what that shard holds.
func (c *Client) everyOwner() ([]string, error) {
	addrs, complete := c.distinct()
	if !complete {
		c.Refresh()
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "some shards have no owner now")
	}
	return addrs, nil
}

func everywhere[R any](c *Client, ask func(meshv1.StoreServiceClient) (R, error)) ([]R, error) {
	addrs, err := c.everyOwner()
	if err != nil {
		return nil, err
	}
	calls := make([]call[struct{}], len(addrs))
	for i, addr := range addrs {
		calls[i].addr = addr
	}
	return scatter(c, calls, func(stub meshv1.StoreServiceClient, _ struct{}) (R, error) { return ask(stub) })
}

// call is one request for one store.
type call[Q any] struct {
	addr string
	req  Q
}

// scatter makes all calls at once (there are about as many as stores) and returns the answers in
// their order, or the first error.
func scatter[Q, R any](c *Client, calls []call[Q], ask func(meshv1.StoreServiceClient, Q) (R, error)) ([]R, error) {
	resps, errs := make([]R, len(calls)), make([]error, len(calls))
	var wg sync.WaitGroup
	for i, k := range calls {
		wg.Go(func() {
			stub, err := c.dials.to(k.addr)
			if err == nil {
				resps[i], err = ask(stub, k.req)
			}
			c.noticed(err)
			errs[i] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return resps, nil
}
