package upstream

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// partly is a store of which every other shard is another owner's. Once that is away, it is not
// known who it is, or whatever it is asked has no answer before the test ends, however short its
// caller's patience is.
type partly struct {
	Store
	away   atomic.Bool
	nobody bool // owns the shards of the one that is away
	ended  chan struct{}
}

func anothers(shard int) bool { return shard%2 == 1 }

// OwnerOf says who owns a shard.
func (p *partly) OwnerOf(shard int) string {
	switch {
	case !anothers(shard):
		return p.Store.OwnerOf(shard)
	case p.nobody && p.away.Load():
		return ""
	}
	return "another"
}

// ask what some shards are needed for.
func (p *partly) ask(shards ...int) error {
	if !p.away.Load() || !slices.ContainsFunc(shards, anothers) {
		return nil
	}
	if !p.nobody {
		<-p.ended
	}
	return code.New(wirev1.Code_CODE_UNAVAILABLE, "no store owns the shard now")
}

func (p *partly) Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error) {
	var shards []int
	for _, t := range topics {
		shards = append(shards, topic.Shard(t))
	}
	if len(filters) > 0 {
		shards = append(shards, 1)
	}
	if err := p.ask(shards...); err != nil {
		return nil, err
	}
	return p.Store.Heads(ctx, topics, filters, limit)
}

func (p *partly) ReadLog(ctx context.Context, req *meshv1.ReadLogRequest, take func(*meshv1.ReadLogResponse) error) error {
	if err := p.ask(topic.Shard(req.GetTopic())); err != nil {
		return err
	}
	return p.Store.ReadLog(ctx, req, take)
}

func (p *partly) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if err := p.ask(topic.SessionShard(req.GetUser(), req.GetName())); err != nil {
		return nil, err
	}
	return p.Store.AttachSession(ctx, req)
}

func (p *partly) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	for _, w := range req.GetWrites() {
		if err := p.ask(topic.SessionShard(w.GetUser(), w.GetName())); err != nil {
			return nil, err
		}
	}
	return p.Store.WriteCursors(ctx, req)
}

// find n names whose shards another owns, or does not.
func find(n int, another bool, name func(i int) (string, int)) (out []string) {
	for i := 0; len(out) < n; i++ {
		if s, shard := name(i); anothers(shard) == another {
			out = append(out, s)
		}
	}
	return out
}

func rooms(n int, another bool) []string {
	return find(n, another, func(i int) (string, int) { s := fmt.Sprintf("room/%d", i); return s, topic.Shard(s) })
}

func sessionNames(n int, another bool) []string {
	return find(n, another, func(i int) (string, int) { s := fmt.Sprint("s", i); return s, topic.SessionShard("u", s) })
}

// together has calls of the mesh taken up at once.
func together(m *Mesh, f func()) {
	gate := make(chan struct{})
	m.ops.Do(func() { <-gate })
	f()
	close(gate)
}

// Whatever is asked of an owner that is away, or that nobody knows: what belongs to others goes on
// meanwhile.
func TestAnOwnerThatIsAwayHoldsUpItsOwnAlone(t *testing.T) {
	for _, nobody := range []bool{false, true} {
		t.Run(map[bool]string{false: "hangs", true: "nobody owns"}[nobody], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := &partly{nobody: nobody, ended: make(chan struct{})}
			m, loops := w.edge("e1", 3, func(c *Config) { p.Store, c.Store = c.Store, p })
			t.Cleanup(func() { // before the mesh stops, which writes what waits
				p.away.Store(false)
				close(p.ended)
			})
			theirs, ours := rooms(300, true), rooms(3, false)
			held := append(sessionNames(8, true), sessionNames(1, false)...)
			generations := map[string]uint64{}
			for i, name := range held {
				m.Attach(conn(2, uint32(i)), "u", name, 0, uint64(i)+1, "")
				generations[name] = next[exchange.Attached](t, loops[2]).Generation
			}
			join(t, m, loops[0], theirs[0])
			join(t, m, loops[0], ours[0])
			p.away.Store(true)

			t.Log("subscriptions")
			together(m, func() {
				for i, name := range theirs {
					m.Join(conn(0, 1), uint32(i)+10, name, true, 0)
				}
				m.Join(conn(1, 1), 1, ours[1], true, 0)
			})
			if j := next[exchange.Joined](t, loops[1]); j.Err != nil || len(j.Heads) != 1 || j.Heads[0].Topic != ours[1] {
				t.Fatalf("%+v", j)
			}

			t.Log("reads of logs")
			w.store.Publish(ours[2], 1)
			for _, name := range theirs {
				m.Read(0, name, 0, 1, 0, 1000)
			}
			m.Read(1, ours[2], 0, 1, 0, 1000)
			if r := next[exchange.Range](t, loops[1]); r.Err != nil || len(r.Messages) != 1 {
				t.Fatalf("%+v", r)
			}

			t.Log("comparisons of heads")
			for n, want := range []string{"1", "1 2", "1 2 3"} {
				w.store.Publish(ours[0], 1)
				m.ops.Do(func() {
					if n == 1 {
						m.checkSome("check", []string{theirs[0], ours[0]})
					} else {
						m.checkAll("gap")
					}
				})
				waitLive(t, loops[0], ours[0], want)
			}

			t.Log("sessions")
			for i, name := range sessionNames(200, true)[8:] {
				m.Attach(conn(0, uint32(i)), "u", name, 0, uint64(i)+100, "")
			}
			m.Attach(conn(1, 7), "u", sessionNames(2, false)[1], 0, 99, "")
			if a := next[exchange.Attached](t, loops[1]); a.Err != nil || a.Conn != conn(1, 7) {
				t.Fatalf("%+v", a)
			}
			for i, name := range held {
				m.Save(conn(2, uint32(i)), 5, &meshv1.SessionWrite{User: "u", Name: name, Generation: generations[name], Cursors: []*meshv1.SessionCursor{{Topic: "t", Floor: 1}}}, true)
				if i < len(held)-1 {
					// each is taken up, and begun, alone
					_, _ = m.sessions.Holder(t.Context(), "u", name)
				}
			}
			if s := next[exchange.Saved](t, loops[2]); s.Err != nil || s.Conn != conn(2, uint32(len(held)-1)) {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// When the owner is back, what waited for it is had.
func TestAnOwnerThatComesBackIsComparedWith(t *testing.T) {
	w := newWorld(t)
	p := &partly{nobody: true, ended: make(chan struct{})}
	m, loops := w.edge("e1", 1, func(c *Config) { p.Store, c.Store = c.Store, p })
	name := rooms(1, true)[0]
	join(t, m, loops[0], name)
	p.away.Store(true)
	w.store.Publish(name, 2)
	m.ops.Do(func() { m.checkSome("check", []string{name}) })
	done := make(chan struct{})
	m.ops.Do(func() { close(done) })
	<-done
	p.away.Store(false)
	waitLive(t, loops[0], name, "1 2")
}
