// Package survey is a question about the topics of filters with wildcards, from the store's answer
// to that of those who joined the filters: it gives the heads to the feed and sorts them by filter.
// What takes long is done beside the goroutine that owns the feed, or in steps.
package survey

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
)

// atATime is how many heads one step deals with: about 50 µs.
const atATime = 64

// newsATime is how many topics that appeared one step looks at, where no filter of the question
// matches them: 60 to 100 ns each. One that is kept takes perMatch times as long.
const (
	newsATime = 16 * atATime
	perMatch  = 4
)

// Asked is a filter.
type Asked struct {
	Filter string
	// Heads says that somebody wants to be told the heads; Limit is how many at most. With more the
	// filter matches too many topics. 0: any number.
	Heads bool
	Limit int
}

// found is what a filter matches: places in Survey.heads, one more than its limit at most.
type found struct {
	Asked
	generation uint64
	at         []int32
	unknown    bool // the store would not name so many topics
	large      bool // it matches more than the limit
}

// Survey belongs to the goroutine that owns the feed, but for Take.
type Survey struct {
	feed   *feed.Feed
	asked  []found
	place  map[string]int32 // of a filter in asked
	basing uint64
	since  uint64 // what appeared before is among the heads
	err    error
	heads  []exchange.Head
	topics map[string]int32 // where a topic stands in heads
	wants  topic.Index[int32]
	met    []int32 // scratch
	given  int     // heads given to the feed
	next   int     // filter to be answered
	most   int     // heads a step
	news   int     // topics that appeared a step
}

// Begin is called before the store is asked.
func Begin(f *feed.Feed, asked []Asked) *Survey {
	since := f.Basing()
	s := &Survey{feed: f, basing: since, since: since, most: atATime, news: newsATime, asked: make([]found, len(asked)), place: make(map[string]int32, len(asked))}
	for i, a := range asked {
		s.asked[i] = found{Asked: a, generation: f.Generation(a.Filter)}
		s.place[a.Filter] = int32(i)
	}
	return s
}

// Take takes the store's answer: heads, in which topics may be named more than once, and the
// filters that matched too many. It is called once, by any goroutine, before the first Step.
func (s *Survey) Take(heads []exchange.Head, tooMany []string, err error) {
	s.err = err
	for _, f := range tooMany {
		s.asked[s.place[f]].unknown = true
	}
	for i := range s.asked {
		if a := &s.asked[i]; err == nil && a.Heads && !a.unknown {
			s.wants.Add(a.Filter, int32(i))
		}
	}
	s.topics = make(map[string]int32, len(heads))
	s.heads = heads[:0]
	for _, h := range heads {
		s.add(h)
	}
}

// add notes a head, the newest of its topic, for the feed and for the filters that match it.
func (s *Survey) add(h exchange.Head) {
	if at, ok := s.topics[h.Topic]; ok {
		if was := &s.heads[at]; h.Epoch > was.Epoch || h.Epoch == was.Epoch && h.Head > was.Head {
			*was = h
		}
		return
	}
	s.match(h.Topic)
	s.keep(h)
}

// match finds the filters that are to be told of a topic.
func (s *Survey) match(name string) {
	if s.met = s.met[:0]; s.wants.Len() > 0 {
		s.met = s.wants.Match(s.met, name)
	}
}

// keep notes the head of a new topic for the filters that match found.
func (s *Survey) keep(h exchange.Head) {
	at := int32(len(s.heads))
	s.topics[h.Topic] = at
	s.heads = append(s.heads, h)
	for _, i := range s.met {
		a := &s.asked[i]
		if a.at = append(a.at, at); a.Limit > 0 && len(a.at) > a.Limit {
			a.large = true
			s.wants.Remove(a.Filter, i) // nobody needs to know how many
		}
	}
}

// TooManyTopics is the answer where a filter matches more topics than its asker takes.
var TooManyTopics = code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "the filter matches too many topics")

// Step does about 50 µs of the work, and reports whether that was the last of it. answer is told of
// one filter after the other: of its heads, which are where the topics are now and name each once,
// or why there are none: TOO_MANY_TOPICS, or what the store said. A filter of which nobody asked
// for heads has neither. answer reports whether it needs to be told once more, with the next step.
// handOn hands on what the feed has for loops: answers tell of it.
func (s *Survey) Step(now time.Time, handOn func(), answer func(filter string, heads []exchange.Head, err error) (again bool)) (done bool) {
	if s.given < len(s.heads) {
		end := min(s.given+s.most, len(s.heads))
		for _, h := range s.heads[s.given:end] {
			s.feed.Head(now, h)
		}
		s.given = end
		return false
	}
	if s.catchUp() {
		return false
	}
	if s.next == len(s.asked) {
		s.feed.BasingDone(s.basing)
		return true
	}
	a := &s.asked[s.next]
	handOn()
	if !s.tell(a, answer) {
		s.next++
	}
	if s.err == nil && !a.unknown {
		// Not before the first are told: messages of topics that are new wait for that. Not after
		// the last either: the first are owed these topics from now on, and whoever is told later
		// is told of them.
		s.feed.Based(a.Filter, a.generation)
	}
	return false
}

// catchUp goes on with topics that appeared since the store was asked, and reports whether there
// are more. All topics of the edge that appear come by, so that those which the question is not
// about are counted for less, and not kept.
func (s *Survey) catchUp() (more bool) {
	room := s.news
	s.since, more = s.feed.Appeared(s.since, func(name string) bool {
		if s.appeared(name) {
			room -= perMatch
		} else {
			room--
		}
		return room > 0
	})
	return more
}

// appeared notes a topic that came to have messages after the store was asked, perhaps: they may
// have been handed on. It reports whether a filter wants to be told of it and did not know it yet.
func (s *Survey) appeared(name string) bool {
	if _, ok := s.topics[name]; ok {
		return false
	}
	if s.match(name); len(s.met) == 0 {
		return false
	}
	s.keep(exchange.Head{Topic: name})
	s.given = len(s.heads) // the feed knows it better
	return true
}

func (s *Survey) tell(a *found, answer func(filter string, heads []exchange.Head, err error) (again bool)) (again bool) {
	switch {
	case !a.Heads:
		return answer(a.Filter, nil, nil)
	case s.err != nil:
		return answer(a.Filter, nil, s.err)
	case a.unknown, a.large:
		return answer(a.Filter, nil, TooManyTopics)
	}
	heads := make([]exchange.Head, 0, len(a.at))
	for _, at := range a.at {
		if h := s.feed.AheadHead(s.heads[at]); h.Epoch > 0 { // else it has gone again
			heads = append(heads, h)
		}
	}
	return answer(a.Filter, heads, nil)
}
