package publish

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// makersKnown is how many addresses, and how many users, have their topics counted; those that
	// made the least are forgotten first.
	makersKnown = 16_384
	// topicsKnown is how many of the topics that were published to last an edge knows to be there,
	// up to twice of it.
	topicsKnown = 32_768
	// longest is what a client is told to wait at most; where much was under way it may owe more.
	longest = 24 * time.Hour
)

// quota bounds the topics with a log that clients of one maker, which is an address or a user, make
// by publishing to them: a topic lasts. That one was made is known from the answer alone, whose
// number is 1, so that a maker goes beyond its quota by what it has under way. From then on it may
// publish to the topics that this edge knows to be there. It is safe for concurrent use.
type quota struct {
	anHour  int    // topics of a maker, and as many at once; 0: no bound
	who     string // "clients of this address have"
	flag    string
	refused atomic.Uint64

	mu     sync.Mutex
	makers map[string]*rate.Limiter // those that are below the quota
	seed   maphash.Seed
	recent map[uint64]struct{} // topics
	before map[uint64]struct{} // those before recent was full
}

func newQuota(anHour int, who, flag string) *quota {
	return &quota{anHour: anHour, who: who, flag: flag, makers: map[string]*rate.Limiter{}, seed: maphash.MakeSeed(), recent: map[uint64]struct{}{}}
}

// check says why a maker may not publish to a topic that has a log. "" may.
func (q *quota) check(maker, topic string) *code.Error {
	if q.anHour == 0 || maker == "" {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.makers[maker]
	if l == nil {
		return nil
	}
	left := l.Tokens()
	if left >= 1 || q.knows(topic) {
		return nil
	}
	q.refused.Add(1)
	// A client is told whole milliseconds; one more, as what is left is reckoned in fractions.
	wait := min(time.Duration((1-left)/float64(l.Limit())*1000+1)*time.Millisecond, longest)
	return code.Retry(wirev1.Code_CODE_RATE_LIMITED, wait, fmt.Sprintf("%s made %d topics by publishing, and more in an hour are too many (%s); topics that were published to before are taken", q.who, q.anHour, q.flag))
}

// knows reports whether a topic was published to lately. q.mu is held.
func (q *quota) knows(topic string) bool {
	h := maphash.String(q.seed, topic)
	if _, ok := q.recent[h]; ok {
		return true
	}
	_, ok := q.before[h]
	if ok {
		q.add(h)
	}
	return ok
}

func (q *quota) add(h uint64) {
	if len(q.recent) >= topicsKnown {
		q.before, q.recent = q.recent, map[uint64]struct{}{}
	}
	q.recent[h] = struct{}{}
}

// note takes an answer to what a maker has published into account.
func (q *quota) note(maker, topic string, r *meshv1.ClientPublishReply_Result) {
	if q.anHour == 0 || r.GetSeq() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(maphash.String(q.seed, topic))
	if maker == "" || r.GetSeq() > 1 || r.GetDuplicate() {
		return
	}
	l := q.makers[maker]
	if l == nil {
		q.forget()
		l = rate.NewLimiter(rate.Limit(float64(q.anHour)/time.Hour.Seconds()), q.anHour)
		q.makers[maker] = l
	}
	// It is spent already: what was under way beyond the quota is owed, however much that is.
	l.ReserveN(time.Now(), 1)
}

// forget makes room for one more: those go that have their whole quota again, or else the
// one of some that has the most left. q.mu is held.
func (q *quota) forget() {
	if len(q.makers) < makersKnown {
		return
	}
	const some = 64
	looked, victim, most := 0, "", math.Inf(-1)
	for maker, l := range q.makers {
		left := l.Tokens()
		if left > float64(q.anHour)-1 {
			delete(q.makers, maker)
		} else if left > most {
			victim, most = maker, left
		}
		if looked++; looked == some {
			break
		}
	}
	if len(q.makers) >= makersKnown {
		delete(q.makers, victim)
	}
}
