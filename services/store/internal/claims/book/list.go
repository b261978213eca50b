package book

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a page: places, and resources that are looked through for a prefix.
const (
	defaultPage, largestPage = 100, 1000
	largestScan              = 20_000
)

// List is a page of who holds and who waits, as of now: like an answer it may be sent when what was
// done before is committed. CONFLICT: the resource's shard, or the first, was not loaded.
func (b *Book) List(req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
	from, err := parseMark(req.GetAfter())
	if err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultPage
	}
	l := lister{limit: min(limit, largestPage), page: &meshv1.StoreServiceListClaimsResponse{}}
	n := int(req.GetShard())
	if req.GetResource() != "" {
		n = topic.Shard(req.GetResource())
	}
	if b.shards[n] == nil {
		return nil, code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard of these resources")
	}
	if name := req.GetResource(); name != "" {
		if r := b.shards[n].resources[name]; r != nil && !l.resource(r, from) {
			l.page.NextShard = uint32(n)
		} else {
			l.page.NextShard = topic.Shards
		}
		return l.page, nil
	}
	for scanned := 0; scanned < largestScan && b.shards[n] != nil && l.shard(b.shards[n], req.GetPrefix(), from); n++ {
		scanned += len(b.shards[n].resources)
		from = mark{}
	}
	l.page.NextShard = uint32(n)
	return l.page, nil
}

// mark is the last place that a page has, by what it keeps while it is where it is.
type mark struct {
	resource string
	// stage, and in it the token of a hold or of a preparation, or the priority and the number of
	// one in line.
	stage, priority uint8
	number          uint64
}

const (
	_ = iota // a mark of nothing
	holding
	preparing
	queueing
)

func (m mark) bytes() []byte {
	head := binary.BigEndian.AppendUint64([]byte{m.stage, m.priority}, m.number)
	return append(head, m.resource...)
}

func parseMark(b []byte) (mark, error) {
	switch {
	case len(b) == 0:
		return mark{}, nil
	case len(b) < 11 || b[0] < holding || b[0] > queueing:
		return mark{}, invalid("after: not what a page ended with")
	}
	return mark{stage: b[0], priority: b[1], number: binary.BigEndian.Uint64(b[2:]), resource: string(b[10:])}, nil
}

type lister struct {
	page  *meshv1.StoreServiceListClaimsResponse
	limit int
	last  mark
}

// shard goes on with one; false: the page is full.
func (l *lister) shard(s *shard, prefix string, from mark) bool {
	l.last = mark{} // one in another shard says nothing about this one
	var names []string
	for name := range s.resources {
		if strings.HasPrefix(name, prefix) && name >= from.resource {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !l.resource(s.resources[name], from) {
			return false
		}
	}
	return true
}

// resource goes on with one, after from if that is in it.
func (l *lister) resource(r *resource, from mark) bool {
	if from.resource != r.name {
		from = mark{}
	}
	for _, p := range r.holds {
		at := mark{resource: r.name, stage: holding, number: p.token}
		if (from.stage < holding || from.stage == holding && p.token > from.number) && !l.add(p, 0, at) {
			return false
		}
	}
	ahead := 0
	for _, a := range r.prepared {
		if a.p == nil {
			continue
		}
		ahead++
		at := mark{resource: r.name, stage: preparing, number: a.token}
		if (from.stage < preparing || from.stage == preparing && a.token > from.number) && !l.add(a.p, ahead, at) {
			return false
		}
	}
	if r.line == nil {
		return true
	}
	start := 1
	if from.stage == queueing {
		start = r.line.Search(from.priority, func(p *place) bool { return p.seq > from.number })
	}
	for i, p := range r.line.From(start) {
		if !l.add(p, ahead+i, mark{resource: r.name, stage: queueing, priority: p.priority, number: p.seq}) {
			return false
		}
	}
	return true
}

// add puts a place on the page; false: it is full without, and says where to go on.
func (l *lister) add(p *place, position int, at mark) bool {
	if len(l.page.Places) == l.limit {
		if l.last != (mark{}) {
			l.page.After = l.last.bytes()
		}
		return false
	}
	l.last = at
	node := ""
	if p.node != nil {
		node = p.node.name
	}
	l.page.Places = append(l.page.Places, &pushmeshv1.ClaimPlace{
		Resource: p.r.name, Owner: p.owner, Token: p.token, Position: uint32(position), Priority: uint32(p.priority),
		JoinedAt: p.joined, GrantedAt: p.granted, ExpiresAt: p.expires, Offered: p.offered != 0, Node: node,
	})
	return true
}
