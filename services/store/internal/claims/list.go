package claims

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
)

// mostLists questions wait at a time.
const mostLists = 64

var errManyLists = code.Retry(wirev1.Code_CODE_OVERLOADED, 100*time.Millisecond, "too many ask for lists of claims")

// listing is a question, and its answer.
type listing struct {
	req  *meshv1.StoreServiceListClaimsRequest
	resp *meshv1.StoreServiceListClaimsResponse
	err  error
	done chan struct{}
}

// List answers with a page of the places in this store's shards. CONFLICT: the shard asked for is
// another store's, or is not loaded yet.
func (l *Lane) List(ctx context.Context, req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
	q := &listing{req: req, done: make(chan struct{})}
	l.mu.Lock()
	if len(l.lists) >= mostLists {
		l.mu.Unlock()
		return nil, errManyLists
	}
	l.lists = append(l.lists, q)
	l.mu.Unlock()
	signal(l.kick)
	select {
	case <-q.done:
		return q.resp, q.err
	case <-ctx.Done():
		return nil, code.From(ctx.Err())
	case <-l.group.Context().Done():
		return nil, errStops
	}
}

// list looks up what is asked for.
func (b *batch) list(all *book.Book) {
	for _, q := range b.lists {
		q.resp, q.err = all.List(q.req)
	}
}

// listed answers, once the database has said that this store may.
func (b *batch) listed() {
	for _, q := range b.lists {
		close(q.done)
	}
	b.lists = nil
}

// fail answers what was not.
func (b *batch) fail() {
	for _, q := range b.lists {
		q.resp, q.err = nil, errAway
	}
	b.listed()
}
