package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// sessions is a mesh of two edges whose namespace jobs is never in a hurry: what is sent again is
// not for a timeout.
type sessions struct {
	*harness.Mesh
	t   *testing.T
	api pushmeshv1.SessionServiceClient
}

const patient = 10 * time.Minute

func newSessions(t *testing.T, p *pushmeshv1.Policy) *sessions {
	t.Helper()
	m := harness.Start(t, harness.Options{Edges: 2})
	p.Durable = true
	if p.GetAckTimeout() == nil {
		p.AckTimeout = durationpb.New(patient)
	}
	putNamespace(t, m, "jobs", p)
	return &sessions{m, t, pushmeshv1.NewSessionServiceClient(m.Router(t))}
}

// putNamespace sets a policy with which topics are durable. Once it returns every edge, router and
// store goes by it.
func putNamespace(t *testing.T, m *harness.Mesh, prefix string, p *pushmeshv1.Policy) {
	t.Helper()
	putEverywhere(t, m.Router(t), prefix, p)
}

// putEverywhere sets a policy through a router, and again where that says that somebody lags, as a
// process may on a machine at work.
func putEverywhere(t *testing.T, router grpc.ClientConnInterface, prefix string, p *pushmeshv1.Policy) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		answer, err := pushmeshv1.NewNamespaceServiceClient(router).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p},
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(answer.GetLagging()) == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("lagging: %v", answer.GetLagging())
		}
	}
}

// attach connects to an edge as the holder of a session of worker.
func (s *sessions) attach(edge int, name string, ttl uint32) (*wireclient.Client, *wirev1.Welcome) {
	s.t.Helper()
	return wireclient.Connect(s.t, s.EdgeAddrs[edge], &wirev1.Hello{ClientId: "worker", Session: name, SessionTtlS: ttl})
}

func resume(filter string) *wirev1.Subscribe {
	return &wirev1.Subscribe{Id: 1, Filter: filter, Ack: true, Start: wirev1.Start_START_SESSION}
}

// is waits until what is known of a session is as wanted; nil: there is none.
func (s *sessions) is(name string, wanted func(*pushmeshv1.Session) bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(wireclient.Patience); ; <-tick.C {
		r, err := s.api.Get(s.t.Context(), &pushmeshv1.SessionServiceGetRequest{User: "client:worker", Name: name})
		if err != nil && code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
			s.t.Fatal(err)
		}
		if wanted(r.GetSession()) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the session is %v, %v", r, err)
		}
	}
}

func free(s *pushmeshv1.Session) bool { return s != nil && s.GetEdge() == "" }

func floor(n uint64) func(*pushmeshv1.Session) bool {
	return func(s *pushmeshv1.Session) bool { return len(s.GetCursors()) == 1 && s.GetCursors()[0].GetFloor() == n }
}

// take reads messages of one topic, whose seqs have to be those.
func take(t *testing.T, c *wireclient.Client, seqs ...uint64) (attempts []uint32) {
	t.Helper()
	for _, want := range seqs {
		m := c.Message()
		if m.GetSeq() != want {
			t.Fatalf("seq %d (attempt %d), want %d", m.GetSeq(), m.GetAttempt(), want)
		}
		attempts = append(attempts, m.GetAttempt())
	}
	return attempts
}

// settled waits until all that came has left as far as the edge knows: only that is an attempt.
func settled(c *wireclient.Client) {
	c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}

func ack(c *wireclient.Client, entries ...*wirev1.Ack_Entry) {
	c.Send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: entries})
}

// A session that connects to another edge: the connection before gets SESSION_TAKEN_OVER and ends,
// and what it had un-ACKed, and nothing else, comes to the new one.
func TestASessionIsTakenOverAtAnotherEdge(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	first, w := s.attach(0, "s", 0)
	if w.GetResumed() {
		t.Error("a new session is resumed")
	}
	first.Subscribe(resume("jobs/1"))
	s.PublishBatch(t, "jobs/1", 10)
	take(t, first, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	ack(first, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 4, Through: true}, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 7})
	s.is("s", floor(4))

	second, w := s.attach(1, "s", 0)
	if !w.GetResumed() {
		t.Error("the session is not resumed")
	}
	if e := first.Error(); e.GetCode() != wirev1.Code_CODE_SESSION_TAKEN_OVER || e.GetRef() != 0 {
		t.Errorf("the connection before was told %v", e)
	}
	first.Closed()
	if sub := second.Subscribe(resume("jobs/1")); !sub.GetRecovered() || sub.GetMissed() != 0 || sub.GetHead() != 10 {
		t.Errorf("%v", sub)
	}
	if attempts := take(t, second, 5, 6, 8, 9, 10); slices.Max(attempts) > 1 {
		t.Errorf("attempts %v", attempts)
	}
	s.Publish(t, "jobs/1", "live")
	if attempts := take(t, second, 11); attempts[0] != 0 {
		t.Errorf("a new message has attempt %d", attempts[0])
	}
	ack(second, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 11, Through: true})
	s.is("s", func(one *pushmeshv1.Session) bool { return one.GetEdge() == "edge-2" && floor(11)(one) })
}

// Attempts are counted over connections and edges; at max_attempts the message is a dead letter,
// once, and a Progress says so.
func TestAttemptsAreCountedOverEdges(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{MaxAttempts: 3})
	letterAPI := pushmeshv1.NewDeadLetterServiceClient(s.Router(t))
	c, _ := s.attach(0, "s", 0)
	c.Subscribe(resume("jobs/1"))
	s.Publish(t, "jobs/1", "poison")
	for attempt := range uint32(3) {
		if got := take(t, c, 1); got[0] != attempt {
			t.Errorf("attempt %d, want %d", got[0], attempt)
		}
		settled(c)
		c.Close()
		s.is("s", free)
		if n := len(letters(t, letterAPI, "")); n != 0 {
			t.Errorf("%d letters after attempt %d", n, attempt)
		}
		c, _ = s.attach(int(attempt+1)%2, "s", 0)
		c.Subscribe(resume("jobs/1"))
	}
	s.Publish(t, "jobs/1", "next") // shows the hole before it
	for told := false; ; {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		f, err := wireclient.Frame(ft, body)
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := f.(*wirev1.Progress); ok {
			told = p.GetFrom() == 1 && p.GetTo() == 1 && p.GetCode() == wirev1.Code_CODE_ATTEMPTS_EXHAUSTED
		}
		if m, ok := f.(*wirev1.Message); ok {
			if m.GetSeq() != 2 || m.GetAttempt() != 0 || !told {
				t.Errorf("%v, told %v", m, told)
			}
			break
		}
	}
	l := awaitLetters(t, letterAPI, "", 1)[0]
	if l.GetReason() != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED || l.GetAttempts() != 3 || string(l.GetPayload()) != "poison" || l.GetSession() != "s" {
		t.Errorf("letter %v", l)
	}
}

// A session ends session_ttl_s after its last connection, with its positions; one that is held does
// not.
func TestASessionEndsAfterItsTTL(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	held, _ := s.attach(0, "held", 1)
	held.Subscribe(resume("jobs/1"))
	c, _ := s.attach(1, "left", 1)
	c.Subscribe(resume("jobs/1"))
	s.Publish(t, "jobs/1", "x")
	take(t, held, 1)
	take(t, c, 1)
	c.Close()
	s.is("left", func(one *pushmeshv1.Session) bool { return one == nil })
	s.is("held", func(one *pushmeshv1.Session) bool { return one.GetEdge() == "edge-1" })
	c, w := s.attach(0, "left", 60)
	if w.GetResumed() {
		t.Error("a session that was over is resumed")
	}
	if sub := c.Subscribe(resume("jobs/1")); sub.GetHead() != 1 || sub.GetMissed() != 0 {
		t.Errorf("%v", sub)
	}
	s.Publish(t, "jobs/1", "y")
	take(t, c, 2) // it begins anew, at the head
	take(t, held, 2)
}

// What retention took before it was ACKed is missed at the next Subscribed, of a session as of a
// position.
func TestWhatRetentionTookIsMissed(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	c, _ := s.attach(0, "s", 0)
	epoch := c.Subscribe(resume("jobs/1")).GetEpoch()
	s.PublishBatch(t, "jobs/1", 5)
	take(t, c, 1, 2, 3, 4, 5)
	ack(c, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 2, Through: true}, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 4})
	s.is("s", floor(2))
	c.Close()
	s.is("s", free)
	putNamespace(t, s.Mesh, "jobs", &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Second)})
	history := pushmeshv1.NewHistoryServiceClient(s.Router(t))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(wireclient.Patience); ; <-tick.C {
		r, err := history.Head(t.Context(), &pushmeshv1.HeadRequest{Topics: []string{"jobs/1"}})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, %v", r, err)
		}
		if r.GetHeads()[0].GetOldest() == 6 {
			break
		}
	}
	c, _ = s.attach(1, "s", 0)
	if sub := c.Subscribe(resume("jobs/1")); sub.GetRecovered() || sub.GetMissed() != 2 || sub.GetHead() != 5 {
		// 3 and 5
		t.Errorf("the session: %v", sub)
	}
	p, _ := wireclient.Connect(t, s.EdgeAddr(), &wirev1.Hello{})
	if sub := p.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/1", Start: wirev1.Start_START_AFTER_SEQ, Seq: 1, Epoch: epoch}); sub.GetRecovered() || sub.GetMissed() != 4 {
		t.Errorf("the position: %v", sub)
	}
}

// An Ack of something unknown, of another's, of another epoch or not sent yet does no harm and
// settles nothing. Un-ACKed messages without a session can be had again by position.
func TestAnAckOfNothingSettlesNothing(t *testing.T) {
	s := newSessions(t, &pushmeshv1.Policy{})
	c, _ := s.attach(0, "s", 0)
	epoch := c.Subscribe(resume("jobs/1")).GetEpoch()
	other, _ := wireclient.Connect(t, s.EdgeAddr(), &wirev1.Hello{})
	other.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/1", Ack: true})
	s.PublishBatch(t, "jobs/1", 2)
	take(t, c, 1, 2)
	take(t, other, 1, 2)
	ack(other, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 1}) // its own
	ack(c, &wirev1.Ack_Entry{Topic: "jobs/none", Seq: 1}, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 3}, &wirev1.Ack_Entry{Topic: "jobs/1"},
		&wirev1.Ack_Entry{Topic: "jobs/1", Seq: 1, Epoch: epoch + 1}, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 2, Through: true, Sub: 9}, &wirev1.Ack_Entry{Topic: "//"})
	s.Publish(t, "jobs/1", "3")
	take(t, c, 3) // not ACKed before it was sent
	take(t, other, 3)
	settled(c)
	c.Close()
	other.Close()
	s.is("s", free)
	c, _ = s.attach(1, "s", 0)
	c.Subscribe(resume("jobs/1"))
	if attempts := take(t, c, 1, 2, 3); fmt.Sprint(attempts) != "[1 1 1]" {
		t.Errorf("attempts %v", attempts)
	}
	other, _ = wireclient.Connect(t, s.EdgeAddrs[1], &wirev1.Hello{})
	other.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/1", Ack: true, Start: wirev1.Start_START_AFTER_SEQ, Seq: 1, Epoch: epoch})
	if attempts := take(t, other, 2, 3); fmt.Sprint(attempts) != "[0 0]" { // nobody counted
		t.Errorf("attempts %v", attempts)
	}
}

// What a member of a group has goes to another at once when it unsubscribes or its connection ends:
// nothing waits for the ack_timeout.
func TestAMemberThatLeavesHandsOver(t *testing.T) {
	s := newSessions(t, &pushmeshv1.Policy{})
	const tries = 5
	for try := range tries {
		if s.handOver(fmt.Sprintf("jobs/%d", try)) {
			return
		}
	}
	t.Errorf("in none of %d groups was it handed over as it should be", tries)
}

// handOver is false where something else came than should, as it does when the machine stands still
// for so long that another edge dispatches.
func (s *sessions) handOver(topic string) bool {
	s.t.Helper()
	member := func(edge int) *wireclient.Client {
		c, _ := wireclient.Connect(s.t, s.EdgeAddrs[edge], &wirev1.Hello{})
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Group: "g", Ack: true, ReceiveWindow: 8})
		return c
	}
	take := func(c *wireclient.Client, attempt uint32) (seqs []uint64) { // all of a window
		for range 8 {
			m := next(s.t, c)
			if m == nil || m.GetAttempt() != attempt {
				s.t.Logf("%v, want attempt %d", m, attempt)
				return nil
			}
			seqs = append(seqs, m.GetSeq())
			if attempt > 0 {
				c.Ack(m, 0)
			}
		}
		slices.Sort(seqs)
		return seqs
	}
	left := func(c *wireclient.Client) bool {
		// all has left as far as the edge knows, and nothing more has come
		c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
		ft, _, err := c.Next(wireclient.Patience)
		for err == nil && ft == wirev1.FrameType_FRAME_TYPE_PROGRESS {
			ft, _, err = c.Next(wireclient.Patience)
		}
		return err == nil && ft == wirev1.FrameType_FRAME_TYPE_PONG
	}
	leaves, dies := member(0), member(1)
	s.PublishBatch(s.t, topic, 16) // as many as both have room for
	has, had := take(leaves, 0), take(dies, 0)
	if has == nil || had == nil || !left(leaves) || !left(dies) {
		return false
	}
	stays := member(0)
	leaves.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	if got := take(stays, 1); !slices.Equal(got, has) {
		s.t.Logf("got %v, who left had %v", got, has)
		return false
	}
	dies.Close()
	got := take(stays, 1)
	if !slices.Equal(got, had) {
		s.t.Logf("got %v, who died had %v", got, had)
	}
	return slices.Equal(got, had)
}

// A dedupe key counts in its topic, for its namespace's window, and through a restart of the store.
func TestDedupeKeys(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{DedupeWindow: durationpb.New(time.Hour)})
	putNamespace(t, s.Mesh, "short", &pushmeshv1.Policy{Durable: true, DedupeWindow: durationpb.New(time.Second)})
	api := pushmeshv1.NewPublishServiceClient(s.Router(t))
	publish := func(topic, key string) (*pushmeshv1.PublishResponse, error) {
		return api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte("x"), DedupeKey: key})
	}
	need := func(topic string, duplicate bool, seq uint64) {
		t.Helper()
		if r, err := publish(topic, "k"); err != nil || r.GetDuplicate() != duplicate || r.GetSeq() != seq {
			t.Errorf("%s: %v, %v", topic, r, err)
		}
	}
	need("jobs/1", false, 1)
	need("jobs/1", true, 1)
	need("jobs/2", false, 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n, over := 0, false; !over; n++ {
		// a first publish may come before the store knows the policy, and has the default's window
		if n == 10 {
			t.Fatal("the window does not end")
		}
		for deadline := time.Now().Add(5 * time.Second); !over && time.Now().Before(deadline); <-tick.C {
			r, err := publish("short/1", fmt.Sprint(n))
			if err != nil {
				t.Fatal(err)
			}
			over = !r.GetDuplicate() && r.GetSeq() == uint64(n)+2
		}
	}
	s.RestartStore(t)
	for deadline := time.Now().Add(wireclient.Patience); ; <-tick.C {
		r, err := publish("jobs/1", "k")
		if err == nil {
			if !r.GetDuplicate() || r.GetSeq() != 1 {
				t.Errorf("after the restart: %v", r)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Two connections that say Hello for one session at two edges within milliseconds, and then write
// nothing: one of them keeps it, the other is told at once.
func TestTwoEdgesAtOnceGiveASessionToOne(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	for i := range 20 {
		name := fmt.Sprint("race-", i)
		ends := make(chan int, 2)
		var clients []*wireclient.Client
		for edge := range 2 {
			clients = append(clients, wireclient.Dial(t, s.EdgeAddrs[edge]))
		}
		for edge, c := range clients {
			c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: "worker", Session: name, HeartbeatMs: 600_000})
			go func() {
				for {
					ft, body, err := c.Next(wireclient.Patience)
					if err != nil {
						return // closed by the test, or its deadline
					}
					var e wirev1.Error
					if ft == wirev1.FrameType_FRAME_TYPE_ERROR && proto.Unmarshal(body, &e) == nil && e.GetCode() == wirev1.Code_CODE_SESSION_TAKEN_OVER {
						ends <- edge
					}
				}
			}()
		}
		select {
		case <-ends:
		case <-time.After(wireclient.Patience):
			t.Fatalf("session %d: both edges hold it", i)
		}
		s.is(name, func(got *pushmeshv1.Session) bool { return got.GetEdge() != "" })
		if len(ends) > 0 {
			t.Fatalf("session %d: neither edge holds it", i)
		}
		for _, c := range clients {
			c.Close()
		}
	}
}

// A session that is deleted while it is held: its holder is told at once that it is gone, and comes
// back to a new one if it likes.
func TestTheHolderOfADeletedSessionIsTold(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	c, _ := s.attach(1, "s", 0)
	c.Subscribe(resume("jobs/1"))
	if _, err := s.api.Delete(t.Context(), &pushmeshv1.SessionServiceDeleteRequest{User: "client:worker", Name: "s"}); err != nil {
		t.Fatal(err)
	}
	if e := c.Error(); e.GetCode() != wirev1.Code_CODE_NOT_FOUND || e.GetRef() != 0 {
		t.Errorf("its holder was told %v", e)
	}
	c.Closed()
	if _, w := s.attach(0, "s", 0); w.GetResumed() {
		t.Error("a session that was deleted is resumed")
	}
}
