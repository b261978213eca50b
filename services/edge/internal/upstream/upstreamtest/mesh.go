// Package upstreamtest is a mesh in memory for tests of event loops: logs, sessions and interest,
// with a switch for each thing that can go wrong.
package upstreamtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

// Mesh is safe for concurrent use. Its answers go to post in the order made.
type Mesh struct {
	mu        sync.Mutex
	post      func(exchange.Event)
	logs      map[string]*Log
	sessions  map[string]*Session
	wants     map[string]int
	closed    bool // Joins that ask for heads fail
	away      map[string]bool
	hold      bool
	holdSaved bool
	held      []exchange.Event

	Reads     int
	Published []*meshv1.ClientPublish_Item
	Letters   []*meshv1.DeadLetter
	Joins     int
	Leaves    int

	// Wheres judges what is sent, and what is read.
	Wheres *filters.Registry

	// GroupErr refuses members of groups.
	GroupErr error
	// Told of members of filters that are watched.
	Told []presence.Change
	// Follows of topics whose members clients watch, and Unfollows of those.
	Follows   []Follow
	Unfollows []string
	members   []*Member
	settled   []exchange.GroupSettled
	ranks     ranks
	Claims    Claims
}

// Log of one durable topic.
type Log struct {
	Epoch    uint64
	Oldest   uint64
	Messages []*exchange.Message
	// Keeps says that the store keeps the newest message.
	Keeps bool
}

// Session as it is stored.
type Session struct {
	Generation uint64
	Cursors    map[string]*meshv1.SessionCursor
	Filters    []string
	Holder     exchange.Conn
	Held       bool
	TTL        uint32  // seconds, of the last Attach
	Origin     string  // of the last Attach
	next       *attach // waits for the holder to detach
	Writes     int
}

// BaseEpoch of logs that nobody published to.
const BaseEpoch = 1000

// New makes an empty mesh.
func New(post func(exchange.Event)) *Mesh {
	return &Mesh{post: post, logs: map[string]*Log{}, sessions: map[string]*Session{}, wants: map[string]int{}, away: map[string]bool{}, Wheres: filters.New(filters.Config{})}
}

var _ exchange.Mesh = (*Mesh)(nil)

// Encode makes a message as an edge has it.
func Encode(name string, epoch, seq uint64, payload string) *exchange.Message {
	return Run(name, epoch, seq, payload)[0]
}

// Run makes messages that follow each other as an edge has them; first 0: ephemeral ones.
func Run(name string, epoch, first uint64, payloads ...string) []*exchange.Message {
	var parts []history.Parts
	for i, payload := range payloads {
		body, err := wire.Body(&wirev1.Message{Payload: []byte(payload), PublishedAt: 1, Id: make([]byte, 16)})
		if err != nil {
			panic(err)
		}
		seq := first
		if first > 0 {
			seq += uint64(i)
		}
		parts = append(parts, history.Parts{Topic: name, Epoch: epoch, Seq: seq, Body: body})
	}
	return history.Encode(nil, parts, false)
}

// TellMembers implements exchange.Mesh.
func (m *Mesh) TellMembers(_ uint16, changes []presence.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Told = append(m.Told, changes...)
}

// Follow is what a loop asked about the members of a topic.
type Follow struct {
	Conn  exchange.Conn
	Topic string
}

// Follow implements exchange.Members.
func (m *Mesh) Follow(conn exchange.Conn, topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Follows = append(m.Follows, Follow{conn, topic})
}

// Unfollow implements exchange.Members.
func (m *Mesh) Unfollow(_ uint16, topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Unfollows = append(m.Unfollows, topic)
}

func (m *Mesh) log(name string) *Log {
	l := m.logs[name]
	if l == nil {
		l = &Log{Epoch: BaseEpoch, Oldest: 1}
		m.logs[name] = l
	}
	return l
}

// Append adds messages to the log without telling anyone.
func (m *Mesh) Append(name string, payloads ...string) []*exchange.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.log(name)
	out := Run(name, l.Epoch, uint64(len(l.Messages))+1, payloads...)
	l.Messages = append(l.Messages, out...)
	return out
}

// Send adds messages to the log and posts them live.
func (m *Mesh) Send(name string, payloads ...string) []*exchange.Message {
	out := m.Append(name, payloads...)
	m.Live(out...)
	return out
}

// Live posts messages, judged by the content filters there are.
func (m *Mesh) Live(msgs ...*exchange.Message) {
	m.Wheres.Judge(msgs)
	m.send(exchange.Live{Messages: msgs})
}

// Forget lets go of every log.
func (m *Mesh) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.logs)
}

// Retain forgets what is older than oldest.
func (m *Mesh) Retain(name string, oldest uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log(name).Oldest = oldest
}

// Keep says whether the store keeps the newest message of a topic, which has one.
func (m *Mesh) Keep(name string, keeps bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log(name).Keeps = keeps
}

// Expire sets when a message's time is over.
func (m *Mesh) Expire(name string, seq, at uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log(name).Messages[seq-1].ExpiresAt = at
}

// NewEpoch begins the log anew.
func (m *Mesh) NewEpoch(name string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[name] = &Log{Epoch: epoch, Oldest: 1}
}

// CloseStore makes everything that needs the store fail, or work again.
func (m *Mesh) CloseStore(closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = closed
}

// Away makes the owner of one topic's shard one that answers no reads, or brings it back. Other
// topics are another's.
func (m *Mesh) Away(name string, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away[name] = away
}

// Hold keeps answers back until Release.
func (m *Mesh) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = true
}

// HoldSaved keeps Saved alone back until Release.
func (m *Mesh) HoldSaved() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holdSaved = true
}

// Release lets answers go.
func (m *Mesh) Release() {
	m.mu.Lock()
	held := m.held
	m.hold, m.holdSaved, m.held = false, false, nil
	m.mu.Unlock()
	for _, e := range held {
		m.post(e)
	}
}

func (m *Mesh) send(e exchange.Event) {
	m.mu.Lock()
	if _, saved := e.(exchange.Saved); m.hold || saved && m.holdSaved {
		m.held = append(m.held, e)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	m.post(e)
}

// Wants is how many Joins of a filter have no Leave yet.
func (m *Mesh) Wants(filter string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wants[filter]
}

// Session is a copy of what is stored.
func (m *Mesh) Session(user, name string) Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[user+"\n"+name]
	if s == nil {
		return Session{}
	}
	out := *s
	out.Cursors = map[string]*meshv1.SessionCursor{}
	for k, v := range s.Cursors {
		out.Cursors[k] = proto.Clone(v).(*meshv1.SessionCursor)
	}
	return out
}

func (l *Log) head(name string) exchange.Head {
	h := exchange.Head{Topic: name, Epoch: l.Epoch, Head: uint64(len(l.Messages)), Oldest: l.Oldest, Behind: uint64(len(l.Messages))}
	if l.Keeps {
		h.Behind--
	}
	return h
}

var errStore = code.New(wirev1.Code_CODE_UNAVAILABLE, "no store")

// Join implements exchange.Mesh.
func (m *Mesh) Join(conn exchange.Conn, sub uint32, filter string, heads bool, limit int) {
	m.mu.Lock()
	m.wants[filter]++
	m.Joins++
	answer := exchange.Joined{Conn: conn, Sub: sub, Exact: !topic.IsFilter(filter)}
	switch {
	case !heads:
	case m.closed:
		answer.Err = errStore
	case !topic.IsFilter(filter):
		answer.Heads = []exchange.Head{m.log(filter).head(filter)}
	default:
		for name, l := range m.logs {
			if topic.Match(filter, name) && len(l.Messages) > 0 {
				answer.Heads = append(answer.Heads, l.head(name))
			}
		}
		if limit > 0 && len(answer.Heads) > limit {
			answer.Heads, answer.Err = nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "too many topics")
		}
	}
	m.mu.Unlock()
	m.send(answer)
}

// Leave implements exchange.Mesh.
func (m *Mesh) Leave(_ uint16, filter string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Leaves++
	if m.wants[filter]--; m.wants[filter] < 0 {
		panic(fmt.Sprintf("upstreamtest: %q was unsubscribed more often than subscribed", filter))
	}
	if m.wants[filter] == 0 {
		delete(m.wants, filter)
	}
}

// Read implements exchange.Mesh.
func (m *Mesh) Read(_ uint16, name string, epoch, from, to uint64, maxBytes int) {
	m.mu.Lock()
	m.Reads++
	l := m.log(name)
	answer := exchange.Range{Topic: name, From: from, Epoch: l.Epoch, Head: uint64(len(l.Messages)), Oldest: l.Oldest}
	switch {
	case m.closed, m.away[name]:
		answer.Err = errStore
	case epoch != 0 && epoch != l.Epoch:
		answer.Err = code.New(wirev1.Code_CODE_EPOCH_CHANGED, "the epoch has ended")
	default:
		if to == 0 || to > answer.Head {
			to = answer.Head
		}
		size := 0
		for seq := max(from, l.Oldest); seq <= to && size < maxBytes; seq++ {
			msg := l.Messages[seq-1]
			answer.Messages = append(answer.Messages, msg)
			size += len(msg.Frame)
		}
	}
	m.mu.Unlock()
	m.Wheres.Judge(answer.Messages)
	m.send(answer)
}

// Publish implements exchange.Mesh: everything is accepted, to a log, and posted live.
func (m *Mesh) Publish(conn exchange.Conn, _ string, id uint32, item *meshv1.ClientPublish_Item) {
	m.mu.Lock()
	m.Published = append(m.Published, item)
	m.mu.Unlock()
	msgs := m.Append(item.GetTopic(), string(item.GetPayload()))
	msg := msgs[0]
	msg.Origin = identity.Origin(item.GetUser(), item.GetClientId())
	m.Live(msgs...)
	m.send(exchange.Published{Conn: conn, ID: id, Result: &meshv1.ClientPublishReply_Result{Seq: msg.Seq, Epoch: msg.Epoch}})
}

// Attach implements exchange.Mesh. A holder is told to yield and waited for.
func (m *Mesh) Attach(conn exchange.Conn, user, name string, ttl uint32, _ uint64, origin string) {
	m.mu.Lock()
	s := m.sessions[user+"\n"+name]
	resumed := s != nil
	if s == nil {
		s = &Session{Cursors: map[string]*meshv1.SessionCursor{}}
		m.sessions[user+"\n"+name] = s
	}
	s.TTL, s.Origin = ttl, origin
	a := &attach{s: s, conn: conn, resumed: resumed}
	if s.Held {
		s.next = a
		old := s.Holder
		m.mu.Unlock()
		m.send(exchange.Yield{Conn: old})
		return
	}
	answer := a.event()
	m.mu.Unlock()
	m.send(answer)
}

type attach struct {
	s       *Session
	conn    exchange.Conn
	resumed bool
}

func (a *attach) event() exchange.Attached {
	a.s.Generation++
	a.s.Held, a.s.Holder = true, a.conn
	out := exchange.Attached{Conn: a.conn, Generation: a.s.Generation, Resumed: a.resumed, Filters: slices.Clone(a.s.Filters), Cursors: map[string]*meshv1.SessionCursor{}}
	for _, c := range a.s.Cursors {
		out.Cursors[c.GetTopic()] = proto.Clone(c).(*meshv1.SessionCursor)
	}
	return out
}

// Save implements exchange.Mesh.
func (m *Mesh) Save(conn exchange.Conn, ref uint32, w *meshv1.SessionWrite, _ bool) {
	m.mu.Lock()
	err := m.store(w)
	s := m.sessions[w.GetUser()+"\n"+w.GetName()]
	var attached *exchange.Attached
	if err == nil && s.next != nil && !s.Held {
		answer := s.next.event()
		attached, s.next = &answer, nil
	}
	m.mu.Unlock()
	if attached != nil {
		m.send(*attached)
	}
	if err != nil {
		m.send(exchange.Detached{Conn: conn})
	}
	if ref > 0 {
		m.send(exchange.Saved{Conn: conn, Ref: ref, Err: err})
	}
}

func (m *Mesh) store(w *meshv1.SessionWrite) error {
	s := m.sessions[w.GetUser()+"\n"+w.GetName()]
	if s == nil || w.GetGeneration() != s.Generation && w.GetGeneration() != 0 {
		return errors.New("stale generation")
	}
	s.Writes++
	for _, c := range w.GetCursors() {
		s.Cursors[c.GetTopic()] = proto.Clone(c).(*meshv1.SessionCursor)
	}
	s.Filters = append(s.Filters, w.GetAddFilters()...)
	s.Filters = slices.DeleteFunc(s.Filters, func(f string) bool { return slices.Contains(w.GetRemoveFilters(), f) })
	for _, name := range w.GetRemoveTopics() {
		delete(s.Cursors, name)
	}
	m.Letters = append(m.Letters, w.GetDeadLetters()...)
	if w.GetDetach() {
		s.Held = false
	}
	return nil
}
