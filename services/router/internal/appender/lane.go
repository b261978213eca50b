package appender

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxMoves bounds how often an item that was never sent looks for another owner.
const maxMoves = 3

// lane keeps the items of one shard in order across owners. Its unanswered items are all on one
// stream; when the owner changes, later items are held until the last of them is answered, and
// follow then with those that the old owner did not take.
type lane struct {
	appender *Appender
	shard    int
	last     atomic.Pointer[stream] // on, for who may not take mu; nil: nothing was sent yet

	mu     sync.Mutex
	on     *stream
	out    int // items on that stream without an answer
	order  uint64
	taken  uint64 // highest order of an item that is, or may be, in the log
	moving bool
	held   []*Item
	stale  string // owner that said it isn't, though the map may still name it
}

func (l *lane) submit(it *Item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order++
	it.order = l.order
	if l.moving {
		l.held = append(l.held, it)
		return nil
	}
	addr, stub, err := l.appender.cfg.Owners.Owner(l.shard)
	if err != nil {
		return err
	}
	if l.out > 0 && (l.on.addr != addr || !l.on.push(it)) {
		l.moving = true
		l.held = append(l.held, it)
		return nil
	}
	if l.out > 0 {
		l.out++
		return nil
	}
	if !l.put(addr, stub, it) {
		return errUnavailable
	}
	return nil
}

// put sends the first of a lane's items to a stream. A stream that broke meanwhile is given another
// try by a new one. l.mu is held.
func (l *lane) put(addr string, stub meshv1.StoreServiceClient, it *Item) bool {
	for range 2 {
		s := l.appender.to(addr, stub)
		if s == nil {
			return false
		}
		if s.push(it) {
			if l.on != s {
				l.last.Store(s)
			}
			l.on = s
			l.out++
			return true
		}
		l.appender.forget(s)
	}
	return false
}

// answered takes an item's result. The sink hears it before the lane may move: so results of a
// topic keep the log's order.
func (l *lane) answered(it *Item, res *meshv1.AppendResult) {
	conflict := res.GetCode() == wirev1.Code_CODE_CONFLICT
	if conflict {
		it.moves++
	}
	again := conflict && it.moves < maxMoves
	if it.isOwn(res) {
		res.Duplicate = false
	}
	switch {
	case again:
	case conflict:
		l.appender.fail(it, "the shard's owner is changing", false)
	default:
		l.appender.done(it, res, res.GetCode() == wirev1.Code_CODE_INTERNAL)
	}
	l.mu.Lock()
	l.out--
	if res.GetCode() == wirev1.Code_CODE_OK {
		l.taken = max(l.taken, it.order)
	}
	if conflict {
		l.moving, l.stale = true, l.on.addr
	}
	if again {
		l.held = append(l.held, it)
	}
	idle := l.moving && l.out == 0
	l.mu.Unlock()
	if conflict {
		l.appender.cfg.Owners.Refresh()
	}
	if idle && !l.move(false) {
		l.appender.park(l)
	}
}

// broke takes back the items that a stream did not answer; sent ones may be in the log.
func (l *lane) broke(items []*Item, sent func(*Item) bool) {
	var back []*Item
	var taken uint64
	for _, it := range items {
		if sent(it) {
			taken = max(taken, it.order)
		}
		switch {
		case sent(it) && it.mayRepeat() && !it.retried:
			it.retried = true
			back = append(back, it)
		case sent(it):
			l.appender.fail(it, "the connection to the store broke: the message may have been stored", true)
		case it.moves < maxMoves:
			it.moves++
			back = append(back, it)
		default:
			l.appender.fail(it, "no connection to the store", false)
		}
	}
	l.mu.Lock()
	l.out -= len(items)
	l.taken = max(l.taken, taken)
	l.moving = true
	l.held = append(l.held, back...)
	idle := l.out == 0
	l.mu.Unlock()
	if idle && !l.move(false) {
		l.appender.park(l)
	}
}

// move sends what is held to the present owner. It returns false where the owner map is not up to
// date yet; with giveUp, and where there is no owner, what is held is refused.
func (l *lane) move(giveUp bool) bool {
	l.mu.Lock()
	addr, stub, err := l.appender.cfg.Owners.Owner(l.shard)
	if err == nil && addr == l.stale && !giveUp {
		l.mu.Unlock()
		return false
	}
	held := l.held
	slices.SortFunc(held, func(a, b *Item) int { return cmp.Compare(a.order, b.order) })
	l.held, l.moving, l.stale = nil, false, ""
	var refused []*Item
	for i, it := range held {
		if l.overtaken(it) {
			refused = append(refused, it)
			continue
		}
		if err != nil || giveUp || !l.put(addr, stub, it) {
			refused = append(refused, held[i:]...)
			break
		}
	}
	l.mu.Unlock()
	for _, it := range refused {
		l.appender.fail(it, "the shard's owner is changing", it.retried)
	}
	return true
}

// overtaken says that sending it now would turn the order round: the owner refused it, and took a
// later one since it had become the owner again. An item whose outcome is unknown is most likely in
// its right place already.
func (l *lane) overtaken(it *Item) bool { return !it.retried && it.order < l.taken }
