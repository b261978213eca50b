package promise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// habits of a subscriber.
type habits struct {
	name    string
	filters []string
	topics  []string // that the filters match
	// session is a durable one, which ACKs; group makes it a member, which ACKs too. Else it
	// resumes by its own positions.
	session bool
	group   string
	sticky  bool // the group's messages find their member by topic
	window  uint32
	// lives is how long a connection is kept, on average; 0: as long as it lasts.
	lives time.Duration
	// late ACKs are those of a redelivery only, so many in 1,000 messages.
	late int
	// poison says what is always refused; nil: nothing.
	poison func(id uint64) bool
}

// sessionName is what every client calls its session.
const sessionName = "promise"

func (h *habits) acks() bool { return h.session || h.group != "" }

// subscriber speaks the wire protocol itself, so that no library hides anything, and writes
// everything down.
type subscriber struct {
	habits
	edges []string
	rand  *rand.Rand

	mu     sync.Mutex
	over   int      // connections that have ended
	lately []string // how the last of them did
	diary  Diary
	ready  chan struct{} // closed when every filter was answered for the first time

	conns  uint32
	epochs map[string]uint64
	high   map[string]uint64 // highest seq seen or skipped
	asked  int               // filters answered on this connection
}

func newSubscriber(h habits, edges []string, r *rand.Rand) *subscriber {
	return &subscriber{
		habits: h, edges: edges, rand: r, ready: make(chan struct{}), epochs: map[string]uint64{}, high: map[string]uint64{},
		diary: Diary{Name: h.name, Topics: h.topics, Acks: h.acks(), Group: h.group, Sticky: h.sticky, Window: int(h.window)},
	}
}

func (s *subscriber) note(e Event) {
	e.At, e.Conn = time.Now(), s.conns
	s.mu.Lock()
	s.diary.Events = append(s.diary.Events, e)
	s.mu.Unlock()
}

// events returns what was written down from the nth on.
func (s *subscriber) events(n int) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.diary.Events[n:]
}

// latelyMost is how many ends of connections are kept.
const latelyMost = 3

// ended notes how a connection ended. Any end is allowed, only what was promised is not: it is for
// those who look for a reason.
func (s *subscriber) ended(why error) {
	end := fmt.Sprintf("connection %d: %v", s.conns, why)
	if why == nil {
		end = fmt.Sprintf("connection %d: its time was over", s.conns)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over++
	s.lately = append(s.lately[max(0, len(s.lately)-latelyMost+1):], end)
}

// connections so far, but for the one that lives.
func (s *subscriber) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// ends are how its last connections ended.
func (s *subscriber) ends() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lately, "; ")
}

// run keeps one connection after the other to edges picked at random, until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.ended(s.connection(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(20+s.rand.IntN(100)) * time.Millisecond):
		}
	}
}

// link is one connection.
type link struct {
	*subscriber
	net.Conn
	r   *bufio.Reader
	out []byte
}

// connection lives one connection through, and says why it ended; nil: its time was over.
func (s *subscriber) connection(ctx context.Context) error {
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", s.edges[s.rand.IntN(len(s.edges))])
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l := &link{subscriber: s, Conn: conn, r: bufio.NewReader(conn)}
	s.conns++
	s.diary.Edges = append(s.diary.Edges, "")
	s.asked = 0
	if err := l.hello(); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	s.note(Event{Kind: Connected})
	defer s.note(Event{Kind: Ended})
	until := time.Now().Add(time.Hour)
	if s.lives > 0 {
		until = time.Now().Add(time.Duration(s.rand.ExpFloat64() * float64(s.lives)))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	nextPing := time.Now()
	for ctx.Err() == nil && time.Now().Before(until) {
		if time.Now().After(nextPing) {
			nextPing = nextPing.Add(2 * time.Second)
			l.add(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
		}
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.frame(100 * time.Millisecond); err != nil && !timedOut(err) {
			return err
		}
	}
	return l.flush()
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func (l *link) add(ft wirev1.FrameType, m proto.Message) {
	b, err := wire.Append(l.out, ft, m)
	if err != nil {
		panic(fmt.Sprintf("promise: encode %v: %v", ft, err)) // our own frames are valid
	}
	l.out = b
}

func (l *link) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	if err := l.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err := l.Write(l.out)
	l.out = l.out[:0]
	return err
}

// hello introduces the subscriber and asks for its filters, all at once.
func (l *link) hello() error {
	hello := &wirev1.Hello{Version: wire.Version, ClientId: l.name, HeartbeatMs: 5000, ReceiveWindow: l.window}
	if l.session {
		hello.Session = sessionName
	}
	l.add(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	for i, filter := range l.filters {
		sub := &wirev1.Subscribe{Id: uint32(i) + 1, Filter: filter, Ack: l.acks(), Group: l.group}
		switch {
		case l.session:
			sub.Start = wirev1.Start_START_SESSION
		case l.group != "":
			sub.Start = wirev1.Start_START_EARLIEST
			if l.sticky {
				sub.GroupKey = "topic"
			}
		default:
			sub.Positions = l.positions(i)
		}
		l.add(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, sub)
	}
	if err := l.flush(); err != nil {
		return err
	}
	ft, body, err := l.next(5 * time.Second)
	if err != nil {
		return err
	}
	m, err := wireclient.Frame(ft, body)
	if err != nil {
		return err
	}
	welcome, ok := m.(*wirev1.Welcome)
	if !ok {
		return fmt.Errorf("%v: %v", ft, m)
	}
	l.diary.Edges[l.conns-1] = welcome.GetEdge()
	return nil
}

// positions of a subscriber without a session: each topic is a filter of its own. Before the first
// message it is at 0.
func (l *link) positions(i int) []*wirev1.Position {
	topic := l.filters[i]
	return []*wirev1.Position{{Topic: topic, Epoch: l.epochs[topic], Seq: l.high[topic]}}
}

// next reads one frame. A frame is waited for as long as patience; once it has begun it has 5 s, so
// that no deadline tears one.
func (l *link) next(patience time.Duration) (wirev1.FrameType, []byte, error) {
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, err
	}
	if _, err := l.r.Peek(1); err != nil {
		return 0, nil, err
	}
	if err := l.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, nil, err
	}
	return wire.Read(l.r, nil, wire.MaxBody)
}

// frame reads one frame and deals with it.
func (l *link) frame(patience time.Duration) error {
	ft, body, err := l.next(patience)
	if err != nil {
		return err
	}
	m, err := wireclient.Frame(ft, body)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wirev1.Subscribed:
		l.subscribed(m)
	case *wirev1.Message:
		l.message(m)
	case *wirev1.Progress:
		l.progress(m)
	case *wirev1.Error:
		return fmt.Errorf("refused: %v", m) // also of one Subscribe: the next connection asks again
	case *wirev1.GoAway:
		return errors.New("go away")
	}
	return nil
}

func (l *link) subscribed(m *wirev1.Subscribed) {
	first := l.first()
	if m.GetEpoch() != 0 {
		topic := l.filters[m.GetId()-1]
		l.epochs[topic] = m.GetEpoch()
		l.missed(first, topic, m.GetRecovered(), m.GetMissed())
	}
	for _, p := range m.GetPositions() {
		l.epochs[p.GetTopic()] = p.GetEpoch()
		l.missed(first, p.GetTopic(), p.GetRecovered(), p.GetMissed())
	}
	if l.asked++; l.asked == len(l.filters) && first {
		close(l.ready)
	}
}

func (l *link) first() bool {
	select {
	case <-l.ready:
		return false
	default:
		return true
	}
}

func (l *link) missed(first bool, topic string, recovered bool, missed uint64) {
	if !first && l.group == "" && (!recovered || missed > 0) {
		l.note(Event{Kind: Missed, Topic: topic, Seq: missed})
	}
}

func (l *link) progress(m *wirev1.Progress) {
	topic := m.GetTopic()
	if m.GetEpoch() != 0 {
		l.epochs[topic] = m.GetEpoch()
	}
	if m.GetTo() > 0 && l.group == "" { // a group's other messages go to other members
		l.note(Event{Kind: Skipped, Topic: topic, Epoch: l.epochs[topic], Code: m.GetCode(), From: max(1, m.GetFrom()), Seq: m.GetTo()})
		l.high[topic] = max(l.high[topic], m.GetTo())
	}
}

func (l *link) message(m *wirev1.Message) {
	topic, epoch := m.GetTopic(), l.epochs[m.GetTopic()]
	id, intact := identify(m.GetPayload())
	l.note(Event{Kind: Delivered, Topic: topic, Epoch: epoch, Seq: m.GetSeq(), ID: id, Intact: intact, Attempt: m.GetAttempt()})
	l.high[topic] = max(l.high[topic], m.GetSeq())
	if !l.acks() {
		return
	}
	answer := Event{Kind: Acked, Topic: topic, Epoch: epoch, Seq: m.GetSeq()}
	switch {
	case l.poison != nil && l.poison(id):
		answer.Kind = Nacked
		l.add(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: topic, Seq: m.GetSeq(), DelayMs: uint32(l.rand.IntN(200)), Reason: "poison"})
	case m.GetAttempt() == 0 && l.rand.IntN(1000) < l.late:
		return
	default:
		l.add(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: topic, Seq: m.GetSeq(), Epoch: epoch}}})
	}
	if len(l.out) > 4096 || l.r.Buffered() == 0 {
		if l.flush() != nil {
			return // the next read says so too
		}
	}
	l.note(answer)
}
