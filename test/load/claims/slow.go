package claims

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// slow measures pairs beside grants that are asked for before, of a service that takes nearly its
// deadline, one at a time.
func (b *bench) slow(ctx context.Context) (err error) {
	defer try.Catch(&err)
	l := try.Get(net.Listen("tcp", "127.0.0.1:0"))
	var asked atomic.Int64
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-time.After(900 * time.Millisecond):
		case <-r.Context().Done():
		}
	})}
	go func() { _ = srv.Serve(l) }() // until Close
	defer func() { _ = srv.Close() }()
	before := &pushmeshv1.ClaimPrepare{Url: "http://" + l.Addr().String(), Deadline: durationpb.New(time.Second), Concurrency: 1}
	try.Do(b.namespace(ctx, asking, before))
	const n = 200
	name := func(i int) string { return fmt.Sprintf("%s/%d", asking, i) }
	err = b.compare(ctx, "a pair beside slow calls before grants", b.Span/2,
		func() error {
			for i := range n {
				if err := b.apis[0].join(ctx, name(i), "asker"); err != nil {
					return err
				}
			}
			return nil
		},
		func() error {
			for i := range n { // some were granted
				if _, err := b.apis[0].Leave(ctx, &pushmeshv1.LeaveRequest{Resource: name(i), Owner: "asker"}); err != nil {
					return err
				}
			}
			return nil
		})
	if err == nil && asked.Load() == 0 {
		err = fmt.Errorf("nobody was asked before a grant")
	}
	return err
}
