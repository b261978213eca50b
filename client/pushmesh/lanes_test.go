package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// idleProducer has nobody who sends: the test does what its goroutine would, with a clock of its
// own.
func idleProducer(cfg ProducerConfig) *Producer {
	cfg.AnswerTimeout = max(cfg.AnswerTimeout, time.Minute)
	if cfg.Buffer == 0 {
		cfg.Buffer = 1024
	}
	p := &Producer{
		cfg: cfg, wake: make(chan struct{}, 1), changed: make(chan struct{}), topics: map[string]*lane{}, refs: map[uint64]*outgoing{}, most: maxProducerTopics,
	}
	p.allow(0)
	p.newID()
	return p
}

// told is what became of a message.
type told struct {
	times  int
	result Result
	err    error
}

func (p *Producer) offer(t *testing.T, m Message) *told {
	t.Helper()
	x := &told{}
	if _, err := p.enqueue(context.Background(), m, func(r Result, err error) { x.times, x.result, x.err = x.times+1, r, err }); err != nil {
		t.Fatal(err)
	}
	return x
}

// fly gathers and expects exactly these payloads.
func (p *Producer) fly(t *testing.T, payloads ...string) []*pushmeshv1.PublishStreamRequest_Item {
	t.Helper()
	req, _, err := p.gather(time.Now())
	var got []string
	for _, it := range req.GetBatch() {
		got = append(got, string(it.GetMessage().GetPayload()))
	}
	if err != nil || !slices.Equal(got, payloads) {
		t.Fatalf("sent %q, %v, want %q", got, err, payloads)
	}
	return req.GetBatch()
}

func (p *Producer) answer(it *pushmeshv1.PublishStreamRequest_Item, r *streamResult) (answered, leave bool) {
	r.Ref = it.GetRef()
	leave = p.results([]*streamResult{r}, &answered)
	return answered, leave
}

func taken(seq uint64) *streamResult {
	return &streamResult{Response: &pushmeshv1.PublishResponse{Seq: seq, Epoch: 1}}
}

// modelMesh takes what a producer sends, by the rules of ordered producers, and answers as it
// likes.
type modelMesh struct {
	rng   *rand.Rand
	logs  map[string][]string
	last  map[string]map[string]uint64
	first map[string]uint64
}

func (m *modelMesh) publish(id string, it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
	topic, seq := it.GetMessage().GetTopic(), it.GetProducerSeq()
	if m.last[id] == nil {
		m.last[id] = map[string]uint64{}
	}
	key := fmt.Sprint(id, topic, seq)
	switch last := m.last[id][topic]; {
	case seq <= last:
		return &streamResult{Response: &pushmeshv1.PublishResponse{Seq: m.first[key], Epoch: 1, Duplicate: true}}
	case seq > last+1:
		return &streamResult{Code: wirev1.Code_CODE_OUT_OF_ORDER}
	}
	m.last[id][topic] = seq
	m.logs[topic] = append(m.logs[topic], string(it.GetMessage().GetPayload()))
	m.first[key] = uint64(len(m.logs[topic]))
	return taken(m.first[key])
}

// Whatever a mesh answers, and whenever streams break: each message is answered once, and those
// that were taken are in their topic's log once and in order. What is refused for now is not sent
// before its time, and then it is; no more is unanswered than is allowed; and in the end nothing is
// left anywhere.
func TestModelOfAProducer(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { modelOfAProducer(t, seed) })
	}
}

func modelOfAProducer(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	p := idleProducer(ProducerConfig{Window: 1 + rng.IntN(40)})
	p.most = 2 + rng.IntN(6)
	mesh := &modelMesh{rng: rng, logs: map[string][]string{}, last: map[string]map[string]uint64{}, first: map[string]uint64{}}
	type fate struct {
		topic string
		told  *told
	}
	var all []fate
	var until time.Time // of everything
	blocked := map[string]time.Time{}
	bad := map[string]bool{}
	next := map[string]int{}
	for calm := 0; calm < 3; {
		for range rng.IntN(30) {
			if len(all) == 300 || p.size >= p.cfg.Buffer {
				break
			}
			topic := fmt.Sprint("room/", rng.IntN(5))
			payload := fmt.Sprint(next[topic])
			next[topic]++
			bad[topic+payload] = rng.IntN(20) == 0
			all = append(all, fate{topic, p.offer(t, Message{Topic: topic, Payload: []byte(payload)})})
		}
		trouble := len(all) < 300 || rng.IntN(2) == 0
		now := time.Now()
		req, at, err := p.gather(now)
		if err != nil {
			t.Fatal(err)
		}
		if req == nil {
			if p.size == 0 && len(all) == 300 {
				calm++
			} else if !at.After(now) {
				t.Fatalf("seed %d: told to look again at once, for nothing", seed)
			}
			pass(at.Sub(now))
			continue
		}
		if n := len(req.GetBatch()); n > maxBatch || p.flying > p.window || len(p.refs) != p.flying {
			t.Fatalf("seed %d: %d in a request, %d unanswered of %d", seed, n, p.flying, p.window)
		}
		if now.Before(until) {
			t.Fatalf("seed %d: sent %v before the time of a limit", seed, until.Sub(now))
		}
		for _, it := range req.GetBatch() {
			if topic := it.GetMessage().GetTopic(); now.Before(blocked[topic]) {
				t.Fatalf("seed %d: sent to %s %v before its time", seed, topic, blocked[topic].Sub(now))
			}
		}
		var rs []*streamResult
		heard := until
		for _, it := range req.GetBatch() {
			topic := it.GetMessage().GetTopic()
			if it.GetSettledSeq() >= it.GetProducerSeq() {
				t.Fatalf("seed %d: %d is sent, and settled up to %d", seed, it.GetProducerSeq(), it.GetSettledSeq())
			}
			var r *streamResult
			hold := time.Duration(rng.IntN(3)) * 40 * time.Millisecond
			switch n := rng.IntN(40); {
			case bad[topic+string(it.GetMessage().GetPayload())] && it.GetProducerSeq() > mesh.last[string(req.GetProducerId())][topic]:
				r = refusal(CodePayloadTooLarge, 0)
			case trouble && n == 0:
				r = refusal(CodeRateLimited, hold)
				if hold == 0 {
					hold = defaultHold
				}
				until = later(until, now.Add(hold))
			case trouble && n <= 2: // it took effect, or did not
				if n == 1 {
					mesh.publish(string(req.GetProducerId()), it)
				}
				c := CodeUnavailable
				if rng.IntN(2) == 0 {
					c = CodeInternal
				}
				r = refusal(c, hold)
				if hold == 0 {
					hold = defaultHold
				}
				blocked[topic] = later(blocked[topic], now.Add(hold))
			default:
				r = mesh.publish(string(req.GetProducerId()), it)
			}
			r.Ref = it.GetRef()
			rs = append(rs, r)
		}
		if trouble && rng.IntN(15) == 0 {
			p.grounded() // the answers are lost
			clear(blocked)
			until = heard
			if p.flying != 0 || len(p.refs) != 0 {
				t.Fatalf("seed %d: %d fly without a stream", seed, p.flying)
			}
			continue
		}
		var answered bool
		if p.results(rs, &answered); !answered {
			t.Fatalf("seed %d: answers are none", seed)
		}
	}
	for topic, n := range next {
		var want []string
		for i := range n {
			if payload := fmt.Sprint(i); !bad[topic+payload] {
				want = append(want, payload)
			}
		}
		if !slices.Equal(mesh.logs[topic], want) {
			t.Fatalf("seed %d: %s holds %v, want %v", seed, topic, mesh.logs[topic], want)
		}
	}
	at := map[string]int{}
	for _, f := range all {
		payload := fmt.Sprint(at[f.topic])
		at[f.topic]++
		switch {
		case f.told.times != 1:
			t.Fatalf("seed %d: %s %s was answered %d times", seed, f.topic, payload, f.told.times)
		case bad[f.topic+payload]:
			var e *Error
			if !errors.As(f.told.err, &e) || e.Code != CodePayloadTooLarge {
				t.Fatalf("seed %d: %v", seed, f.told.err)
			}
		case f.told.err != nil || mesh.logs[f.topic][f.told.result.Seq-1] != payload:
			t.Fatalf("seed %d: %s %s was answered %+v", seed, f.topic, payload, f.told)
		}
	}
	if p.size != 0 || p.flying != 0 || p.calling != 0 || len(p.refs) != 0 {
		t.Fatalf("seed %d: left are %d, %d fly, %d callbacks", seed, p.size, p.flying, p.calling)
	}
	if len(p.topics) > p.most+5 {
		t.Fatalf("seed %d: %d topics are kept", seed, len(p.topics))
	}
}

// What a fault of the mesh may have stored is sent again so often, and then its caller is told that
// nobody knows; an ephemeral one at once.
func TestFaultsOfTheMeshEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idleProducer(ProducerConfig{})
		x := p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		for range maxFaults {
			if _, leave := p.answer(p.fly(t, "x")[0], refusal(CodeInternal, time.Second)); leave || x.times > 0 {
				t.Fatal(x)
			}
			pass(time.Second - 1)
			p.fly(t)
			pass(1)
		}
		p.answer(p.fly(t, "x")[0], refusal(CodeInternal, 0))
		if e := (*Error)(nil); x.times != 1 || !errors.As(x.err, &e) || !e.Unknown || e.Code != CodeInternal {
			t.Fatalf("%+v", x)
		}
		y := p.offer(t, Message{Topic: "b", Payload: []byte("y"), Ephemeral: true})
		p.answer(p.fly(t, "y")[0], refusal(CodeInternal, 0))
		if e := (*Error)(nil); y.times != 1 || !errors.As(y.err, &e) || !e.Unknown {
			t.Fatalf("%+v", y)
		}
		z := p.offer(t, Message{Topic: "c", Payload: []byte("z"), Ephemeral: true})
		// it was not taken: nothing is unknown
		p.answer(p.fly(t, "z")[0], refusal(CodeUnavailable, 0))
		pass(time.Hour)
		it := p.fly(t, "z")[0]
		if it.GetProducerSeq() != 1 {
			t.Errorf("it has number %d", it.GetProducerSeq())
		}
		p.answer(it, &streamResult{Response: &pushmeshv1.PublishResponse{}})
		if z.err != nil || z.times != 1 {
			t.Errorf("%+v", z)
		}
		if p.size != 0 {
			t.Errorf("%d are left", p.size)
		}
	})
}

// A first message that is out of order may be so for a moment. When it stays so, the mesh has
// forgotten the producer: under a new id it begins at 1. What the mesh may have under the old one
// is answered, rather than published twice.
func TestAForgottenProducersFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idleProducer(ProducerConfig{})
		old := p.id
		p.answer(func() *pushmeshv1.PublishStreamRequest_Item {
			p.offer(t, Message{Topic: "a", Payload: []byte("0")})
			return p.fly(t, "0")[0]
		}(), taken(1))
		unknown := p.offer(t, Message{Topic: "b", Payload: []byte("u")})
		p.answer(p.fly(t, "u")[0], refusal(CodeUnavailable, time.Hour))
		x := p.offer(t, Message{Topic: "a", Payload: []byte("1")})
		for i := range maxStrays + 1 {
			it := p.fly(t, "1")[0]
			if it.GetProducerSeq() != 2 || !slices.Equal(p.id, old) {
				t.Fatalf("try %d has number %d", i, it.GetProducerSeq())
			}
			p.answer(it, &streamResult{Code: wirev1.Code_CODE_OUT_OF_ORDER})
			if i < maxStrays {
				wait := time.Duration(i+1) * defaultHold
				pass(wait - 1)
				p.fly(t)
				pass(1)
			}
		}
		pass(time.Second)
		it := p.fly(t, "1")[0]
		if it.GetProducerSeq() != 1 || slices.Equal(p.id, old) {
			t.Errorf("under a new id: %v, it has number %d", !slices.Equal(p.id, old), it.GetProducerSeq())
		}
		p.answer(it, taken(2))
		if e := (*Error)(nil); x.times != 1 || x.err != nil || unknown.times != 1 || !errors.As(unknown.err, &e) || !e.Unknown || e.Code != CodeOutOfOrder {
			t.Errorf("%+v, %+v", x, unknown)
		}
		if p.size != 0 {
			t.Errorf("%d are left", p.size)
		}
	})
}

// A message that is refused for good after a break may have been taken before it, or not: only what
// comes behind shows whether its number is used. Neither way takes the messages behind it along,
// whose outcomes the break has left open too.
func TestARefusalAfterABreak(t *testing.T) {
	for _, had := range []int{0, 1, 2, 3, 4} { // how many of them the mesh took before the break
		for _, key := range []string{"", "k"} {
			synctest.Test(t, func(t *testing.T) {
				p := idleProducer(ProducerConfig{})
				mesh := &modelMesh{logs: map[string][]string{}, last: map[string]map[string]uint64{}, first: map[string]uint64{}}
				bad, worse := p.offer(t, Message{Topic: "a", Payload: []byte("bad")}), p.offer(t, Message{Topic: "a", Payload: []byte("bad")})
				all := []*told{p.offer(t, Message{Topic: "a", Payload: []byte("1"), DedupeKey: key}), p.offer(t, Message{Topic: "a", Payload: []byte("2")})}
				for i, it := range p.fly(t, "bad", "bad", "1", "2") {
					if i < had {
						mesh.publish(string(p.id), it)
					}
				}
				p.grounded()
				all = append(all, p.offer(t, Message{Topic: "a", Payload: []byte("3"), DedupeKey: key + key}))
				for began := time.Now(); p.size > 0; {
					req, at, err := p.gather(time.Now())
					if err != nil || time.Since(began) > patience {
						t.Fatalf("%d taken before: %d are left, %v", had, p.size, err)
					}
					pass(time.Until(at))
					for _, it := range req.GetBatch() {
						if string(it.GetMessage().GetPayload()) == "bad" {
							p.answer(it, refusal(CodeForbidden, 0))
							continue
						}
						p.answer(it, mesh.publish(string(req.GetProducerId()), it))
					}
				}
				want := []string{"1", "2", "3"}
				for range min(had, 2) {
					want = slices.Insert(want, 0, "bad")
				}
				var e, f *Error
				if !slices.Equal(mesh.logs["a"], want) || !errors.As(bad.err, &e) || !e.Unknown || !errors.As(worse.err, &f) || !f.Unknown {
					t.Errorf("%d taken before: stored %q, %v, %v", had, mesh.logs["a"], bad.err, worse.err)
				}
				for _, x := range all {
					if x.times != 1 || x.err != nil {
						t.Errorf("%d taken before: %+v", had, x)
					}
				}
			})
		}
	}
}

// A message that can't have been taken, and is called a duplicate, has met the number of one that
// was: it takes the next one, so often. One with a dedupe key is a duplicate.
func TestNumbersThatAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idleProducer(ProducerConfig{})
		again := &streamResult{Response: &pushmeshv1.PublishResponse{Seq: 9, Epoch: 1, Duplicate: true}}
		x := p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		for i := range maxClashes + 1 {
			it := p.fly(t, "x")[0]
			if it.GetProducerSeq() != uint64(i+1) || x.times > 0 {
				t.Fatalf("try %d has number %d, %+v", i, it.GetProducerSeq(), x)
			}
			p.answer(it, again)
		}
		if x.times != 1 || x.err != nil || !x.result.Duplicate || x.result.Seq != 9 {
			t.Errorf("%+v", x)
		}
		y := p.offer(t, Message{Topic: "b", Payload: []byte("y"), DedupeKey: "k"})
		p.answer(p.fly(t, "y")[0], again)
		if y.times != 1 || !y.result.Duplicate {
			t.Errorf("%+v", y)
		}
	})
}

// Answers to what nobody waits for, doubled ones among them, change nothing, and are no sign that a
// router is good for something.
func TestAnswersToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idleProducer(ProducerConfig{})
		x := p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		it := p.fly(t, "x")[0]
		var answered bool
		p.results([]*streamResult{{Ref: 77, Code: wirev1.Code_CODE_FORBIDDEN}}, &answered)
		if answered || x.times != 0 || p.flying != 1 {
			t.Fatalf("%+v, %d fly", x, p.flying)
		}
		if answered, leave := p.answer(it, refusal(CodeDraining, time.Second)); answered || !leave || x.times != 0 {
			t.Errorf("a router that drains answered %v, and is left %v", answered, leave)
		}
		p.grounded()
		it = p.fly(t, "x")[0] // what it wanted held is nothing to the next one
		if answered, leave := p.answer(it, taken(1)); !answered || leave || x.times != 1 {
			t.Errorf("%+v", x)
		}
		p.answer(it, taken(2))
		if x.times != 1 || p.flying != 0 {
			t.Errorf("%+v, %d fly", x, p.flying)
		}
	})
}

// A lane that waits holds up no other, and what is held says when to look again.
func TestWhenToLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{AnswerTimeout: time.Minute})
		_, at, _ := p.gather(now)
		if at != now.Add(15*time.Second) {
			t.Errorf("with nothing to send it looks again in %v", at.Sub(now))
		}
		p.offer(t, Message{Topic: "a", Payload: []byte("a")})
		p.offer(t, Message{Topic: "b", Payload: []byte("b")})
		for _, it := range p.fly(t, "a", "b") {
			hold := 3 * time.Second
			if it.GetMessage().GetTopic() == "b" {
				hold = 2 * time.Second
			}
			p.answer(it, refusal(CodeUnavailable, hold))
		}
		if _, at, _ := p.gather(now); at != now.Add(2*time.Second) {
			t.Errorf("it looks again in %v", at.Sub(now))
		}
		pass(2*time.Second - 1)
		p.fly(t)
		pass(1)
		b := p.fly(t, "b")[0]
		pass(time.Second)
		p.offer(t, Message{Topic: "c", Payload: []byte("c")})
		// the limit is the producer's
		p.answer(b, refusal(CodeRateLimited, 4*time.Second))
		if _, at, _ := p.gather(time.Now()); at != now.Add(7*time.Second) {
			t.Errorf("it looks again in %v", at.Sub(now))
		}
		pass(4*time.Second - 1)
		p.fly(t)
		pass(1)
		p.fly(t, "a", "c", "b")
	})
}

// A router that leaves a message unanswered for AnswerTimeout is given up, and not before.
func TestAnAnswerThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{AnswerTimeout: time.Minute, Window: 1})
		p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		p.fly(t, "x")
		for _, d := range []time.Duration{time.Minute - 8*time.Second, time.Minute - 1} {
			if _, _, err := p.gather(now.Add(d)); err != nil {
				t.Fatalf("after %v: %v", d, err)
			}
		}
		if _, _, err := p.gather(now.Add(time.Minute + 8*time.Second)); CodeOf(err) != CodeUnavailable {
			t.Errorf("goes on: %v", err)
		}
	})
}
