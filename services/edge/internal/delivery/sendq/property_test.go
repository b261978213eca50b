package sendq

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// model is what one queue should hold and have sent, kept the simple way.
type model struct {
	q       Queue
	pushed  []*pushed // in this order
	socket  []byte    // bytes that were sent and are no whole frame yet
	arrived []*pushed // in this order
}

// pushed is a frame that was queued.
type pushed struct {
	frame    []byte // as it must arrive; of a gap as it says now
	topic    string // "": an answer
	number   int    // in the order of pushes
	rank     int64
	message  *exchange.Message // nil: an answer or a gap
	dropped  bool
	arrived  bool
	subsIDs  []uint32 // named by whoever sends
	assigned uint32
	attempt  uint16
	mark     Mark
}

// machine is a few queues with all that they share, and a model of each.
type machine struct {
	t       *rapid.T
	shared  *Shared
	budget  *budget.Share
	cost    walk.Cost
	ms      int64
	wall    uint64
	streams map[string]*Stream
	queues  []*model
	seqs    map[string]uint64
	number  int
}

const testBudget = 64 << 20

func newMachine(t *rapid.T) *machine {
	m := &machine{t: t, budget: budget.New(testBudget, 1).Share(0), ms: 1 << 20, wall: 1000, streams: map[string]*Stream{}, seqs: map[string]uint64{}}
	m.shared = NewShared(Limits{Messages: 1000, Bytes: 1 << 20}, m.budget, &m.cost)
	m.shared.SetTime(uint32(m.ms), m.wall)
	for range rapid.IntRange(1, 3).Draw(t, "queues") {
		m.queues = append(m.queues, &model{q: Empty})
	}
	return m
}

// stream of a queue for a topic.
func (m *machine) stream(owner int, topic string) *Stream {
	key := fmt.Sprint(owner, topic)
	if m.streams[key] == nil {
		m.streams[key] = &Stream{}
	}
	return m.streams[key]
}

// push queues one thing or a run of several.
func (m *machine) push(owner int) {
	x, t := m.queues[owner], m.t
	add := func(it *Item, p pushed) {
		p.number, p.rank = m.number, m.ms
		m.number++
		if p.message != nil {
			p.rank -= int64(p.message.Priority) * PriorityStep
		}
		x.pushed = append(x.pushed, &p)
		if it != nil {
			x.q.Push(m.shared, uint32(owner), it)
		}
	}
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	topic := fmt.Sprint("room/", rapid.IntRange(0, 2).Draw(t, "topic"))
	priority := uint8(rapid.SampledFrom([]int{0, 0, 3, 9}).Draw(t, "priority"))
	payload := strings.Repeat("x", rapid.SampledFrom([]int{1, 20, 700}).Draw(t, "size"))
	if kind == 0 {
		frame := m.shared.Encode(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: uint64(m.number) + 1})
		it := AnswerOf(frame)
		add(&it, pushed{frame: frame})
		return
	}
	n := rapid.IntRange(1, 4).Draw(t, "messages")
	if kind != 1 {
		n = 1
	}
	first := uint64(0)
	if kind <= 4 {
		first = m.seqs[topic] + 1
		m.seqs[topic] += uint64(n)
	}
	if kind == 2 { // seqs that will not come
		frame := m.progress(topic, first, first)
		it := GapOf(m.stream(owner, topic), first, frame, priority)
		add(&it, pushed{frame: frame, topic: topic, rank: 0})
		x.pushed[len(x.pushed)-1].rank -= int64(priority) * PriorityStep
		return
	}
	all := upstreamtest.Run(topic, min(first, 1), first, slices.Repeat([]string{payload}, n)...)
	for _, one := range all {
		one.Priority = priority
		if rapid.IntRange(0, 5).Draw(t, "expires") == 0 {
			one.ExpiresAt = m.wall + uint64(rapid.IntRange(1, 500).Draw(t, "in"))
		}
	}
	one := all[0]
	switch kind {
	case 1: // as it is shared
		for _, r := range Runs(nil, all) {
			it := r.Item(m.stream(owner, topic))
			for i := range r.count {
				p := pushed{frame: all[0].Frame, topic: topic, message: all[0]}
				if all = all[1:]; i == 0 {
					add(&it, p)
				} else {
					add(nil, p)
				}
			}
		}
		for m := one; m != nil; m = m.Next {
			x.q.ExpiresBy(m.ExpiresAt)
		}
	case 3: // with the ids of subscriptions
		it := Redelivery(one, m.stream(owner, topic), true, 2)
		add(&it, pushed{topic: topic, message: one, attempt: 2, subsIDs: []uint32{4, 700}})
	case 4:
		it := Delivery(one, m.stream(owner, topic), true, Scored(0.5))
		add(&it, pushed{topic: topic, message: one, mark: Scored(0.5), subsIDs: []uint32{5}})
	case 5: // for a member of a group
		it := Assignment(one, 9, 0)
		add(&it, pushed{topic: topic, message: one, assigned: 9})
	case 6: // ephemeral, for several
		it := Delivery(one, nil, false, Unranked)
		it.ForSubscriptions(7, []uint32{7, 8}, true)
		add(&it, pushed{topic: topic, message: one, mark: Unranked, subsIDs: []uint32{7, 8}})
	}
}

func (m *machine) progress(topic string, from, to uint64) []byte {
	return m.shared.Encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: topic, Epoch: 1, From: from, To: to})
}

// of finds the frame that a message makes.
func (x *model) of(m *exchange.Message) *pushed {
	for _, p := range x.pushed {
		if p.message == m {
			return p
		}
	}
	return nil
}

// ids of the subscriptions that only the caller knows.
func (x *model) ids(it *Item) []uint32 {
	if !it.NeedsIDs() {
		return nil
	}
	return x.of(it.Message()).subsIDs
}

// write gathers, and has a socket take some of it.
func (m *machine) write(owner int) {
	x := m.queues[owner]
	g := x.q.Gather(nil, 0)
	for it := g.Next(); it != nil; it = g.Next() {
		g.Add(it, x.ids(it))
	}
	all := slices.Concat(g.Pieces...)
	n := rapid.IntRange(0, len(all)).Draw(m.t, "written")
	if rapid.Bool().Draw(m.t, "all") {
		n = len(all)
	}
	x.socket = append(x.socket, all[:n]...)
	m.shared.EndGathering()
	for it := x.q.First(); it != nil; it = x.q.First() {
		var sent Item
		if !x.q.TakeSent(&n, x.ids(it), &sent) {
			if n > 0 {
				x.q.BeginFirst(n, x.ids(it))
			}
			break
		}
	}
	m.arrive(x)
}

// arrive compares whole frames with what was pushed.
func (m *machine) arrive(x *model) {
	for {
		n, _, ok := wire.Header(x.socket)
		if !ok || len(x.socket) < wire.HeaderSize+n {
			return
		}
		frame := x.socket[:wire.HeaderSize+n]
		x.socket = x.socket[wire.HeaderSize+n:]
		i := slices.IndexFunc(x.pushed, func(p *pushed) bool { return !p.arrived && !p.dropped && slices.Equal(p.whole(m.t), frame) })
		if i < 0 {
			m.t.Fatalf("a frame has arrived that nobody waits for: %x", frame)
		}
		p := x.pushed[i]
		p.arrived = true
		for _, o := range x.arrived {
			switch overtaken := o.number > p.number; {
			case !overtaken:
			case o.topic == "" || p.topic == "":
				m.t.Fatalf("frame %d overtook %d, and one of them is an answer", o.number, p.number)
			case o.topic == p.topic:
				m.t.Fatalf("frame %d overtook %d of its topic", o.number, p.number)
			case o.rank >= p.rank+9*PriorityStep:
				m.t.Fatalf("frame %d of rank %d overtook %d of rank %d", o.number, o.rank, p.number, p.rank)
			}
		}
		x.arrived = append(x.arrived, p)
	}
}

// whole is the frame as it must arrive.
func (p *pushed) whole(t *rapid.T) []byte {
	if p.message == nil || p.attempt == 0 && p.subsIDs == nil && p.assigned == 0 {
		return p.frame
	}
	if p.frame != nil {
		return p.frame
	}
	ids := p.subsIDs
	if p.assigned != 0 {
		ids = []uint32{p.assigned}
	}
	score, isUnranked := p.mark.of()
	tail, err := proto.Marshal(&wirev1.Message{Attempt: uint32(p.attempt), Score: score, Subs: ids, Unranked: isUnranked})
	if err != nil {
		t.Fatal(err)
	}
	p.frame = append(slices.Clone(p.message.Frame), tail...)
	wire.PutHeader(p.frame, len(p.frame)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_MESSAGE)
	return p.frame
}

// queued are the frames that a queue holds which have not begun.
func (x *model) queued() (messages map[*exchange.Message]bool) {
	messages = map[*exchange.Message]bool{}
	for i := range x.q.Len() {
		it := x.q.At(i)
		for m, n := it.Message(), it.Count(); m != nil && n > 0; m, n = m.Next, n-1 {
			messages[m] = true
		}
	}
	return messages
}

// drop has one of the ways to take messages out of a queue do so, and notes which are gone.
func (m *machine) drop(owner int) {
	x, t := m.queues[owner], m.t
	q := &x.q
	before := x.queued()
	at := func() (i uint32, ok bool) { // of a message that has not begun
		if q.Len() == 0 {
			return 0, false
		}
		i = uint32(rapid.IntRange(0, int(q.Len())-1).Draw(t, "at"))
		return i, q.At(i).Kind() == Message && !q.Begun(i)
	}
	switch rapid.IntRange(0, 10).Draw(t, "way") {
	case 0:
		if i, ok := at(); ok {
			q.Drop(i)
		}
	case 1:
		if i, ok := at(); ok {
			q.DropFirst(i)
		}
	case 2, 3:
		m.dropIntoGap(x, at)
	case 4:
		oldest := slices.ContainsFunc(x.pushed, func(p *pushed) bool { return p.message != nil && p.message.Seq == 0 && m.isQueued(x, p.message) })
		if dropped := q.DropOldestEphemeral(); dropped != oldest {
			t.Fatalf("an ephemeral message is dropped: %v, and there is one: %v", dropped, oldest)
		}
	case 5:
		goal := rapid.IntRange(0, q.Held()).Draw(t, "goal")
		n := q.DropEphemeral(goal)
		if gone := len(before) - len(x.queued()); int(n) != gone {
			t.Fatalf("%d messages are dropped, and %d are gone", n, gone)
		}
	case 6:
		q.DropSubscription(9)
	case 7:
		for _, p := range x.pushed { // and gaps
			if i := m.place(x, p); p.message == nil && p.topic != "" && i >= 0 && !q.Begun(uint32(i)) {
				p.dropped = true
			}
		}
		q.KeepAnswers()
	case 8:
		if i, ok := at(); ok && q.At(i).Count() > 1 {
			q.Split(i)
		}
	case 9:
		if i, ok := at(); ok && q.FirstExpired(i) {
			q.DropFirst(i)
		}
	case 10:
		q.Tidy()
	}
	if rapid.Bool().Draw(t, "compact") {
		q.Compact()
		q.Shrink()
	}
	left := x.queued()
	for one := range before {
		if p := x.of(one); p != nil && !left[one] {
			p.dropped = true
		}
	}
}

// isQueued reports whether a message is queued and has not begun.
func (m *machine) isQueued(x *model, one *exchange.Message) bool {
	for i := range x.q.Len() {
		it := x.q.At(i)
		for m, n := it.Message(), it.Count(); m != nil && n > 0; m, n = m.Next, n-1 {
			if m == one {
				return it.Kind() == Message && !x.q.Begun(i)
			}
		}
	}
	return false
}

// place of a frame without a message in the queue; -1: it is not there.
func (m *machine) place(x *model, p *pushed) int {
	for i := range x.q.Len() {
		if it := x.q.At(i); it.Message() == nil && len(p.frame) > 0 && len(it.Bytes()) > 0 && &it.Bytes()[0] == &p.frame[0] {
			return int(i)
		}
	}
	return -1
}

// dropIntoGap turns a message into a gap, and perhaps the one behind it of its topic.
func (m *machine) dropIntoGap(x *model, at func() (uint32, bool)) {
	i, ok := at()
	q := &x.q
	if !ok || q.At(i).Stream() == nil {
		return
	}
	it := q.At(i)
	first, stream, n := it.Message(), it.Stream(), it.Count()
	frame := m.progress(first.Topic, first.Seq, first.Seq)
	p := x.of(first)
	gap := &pushed{frame: frame, topic: p.topic, number: p.number, rank: p.rank}
	x.pushed = append(x.pushed, gap)
	if n == 1 || rapid.Bool().Draw(m.t, "one") {
		q.DropFirstInto(i, NoGap, frame, wirev1.Code_CODE_EXPIRED)
	} else {
		q.DropInto(i, NoGap, frame, wirev1.Code_CODE_EXPIRED)
	}
	g := q.At(i)
	if g.Kind() != Gap || !g.MadeFor(wirev1.Code_CODE_EXPIRED) || g.From() != first.Seq {
		m.t.Fatalf("the gap is %+v", g)
	}
	if j := i + 1; j < q.Len() && q.At(j).Kind() == Message && q.At(j).Stream() == stream && rapid.Bool().Draw(m.t, "grows") {
		gap.frame = m.progress(first.Topic, first.Seq, q.At(j).Message().Seq)
		if at := q.DropFirstInto(j, i, gap.frame, wirev1.Code_CODE_EXPIRED); at != i {
			m.t.Fatalf("the gap at %d is at %d", i, at)
		}
	}
}

// replace has a message take the place of an older one.
func (m *machine) replace(owner int) {
	x := m.queues[owner]
	before := x.queued()
	one := upstreamtest.Encode("room/0", 0, 0, "new")
	it := Delivery(one, nil, false, Unranked)
	it.ForSubscriptions(7, []uint32{7, 8}, true)
	n := x.q.Replace(&it)
	if n == 0 {
		return
	}
	left := x.queued()
	for old := range before {
		if !left[old] {
			p := x.of(old)
			p.dropped = true
			x.pushed = append(x.pushed, &pushed{topic: p.topic, number: p.number, rank: p.rank, message: one, subsIDs: it7, mark: Unranked})
		}
	}
}

var it7 = []uint32{7, 8}

// check compares all that is counted with what is there.
func (m *machine) check() {
	t, h := m.t, m.shared
	var all, kernel, used int64
	inUse, stalled, listed := 0, int64(0), 0
	queued := map[*Stream]uint32{}
	for owner, x := range m.queues {
		s := x.q.s
		if x.q.IsEmpty() {
			if s.n != 0 || s.held != 0 || s.stalled || s.items != nil || s.shared != nil {
				t.Fatalf("the empty queue is %+v", s)
			}
			continue
		}
		inUse++
		bytes, answers, messages, dead := 0, 0, 0, 0
		for i := range s.n {
			it := s.at(i)
			bytes += len(it.bytes)
			switch it.kind {
			case Dead:
				if dead++; it.message != nil || it.stream != nil || it.bytes != nil {
					t.Fatalf("a dead item has something: %+v", it)
				}
			case Answer:
				answers += len(it.bytes) + shortAnswer
			case Message, Rest:
				messages += int(it.count)
				if it.stream != nil {
					queued[it.stream] += it.count
				}
			}
			size := 0
			for m, n := it.message, it.count; it.kind == Message && n > 0; m, n = m.Next, n-1 {
				size += len(m.Frame)
				if m.ExpiresAt != 0 && !s.begun(i) && (s.expires == 0 || s.expires > m.ExpiresAt) {
					t.Fatalf("a message expires at %d, the queue says at %d", m.ExpiresAt, s.expires)
				}
			}
			if it.kind == Message && it.Mark() != encoded && size != len(it.bytes) {
				t.Fatalf("an item of %d bytes has messages of %d", len(it.bytes), size)
			}
		}
		held := stateSize + bytes + int(s.kernel) + int(s.beside)
		if len(s.items) != len(s.own) {
			held += len(s.items) * itemSize
		}
		if s.bytes != bytes || int(s.answers) != answers || int(s.messages) != messages || int(s.dead) != dead || s.held != held || s.class != h.sizes.class(held) && held >= leastListed {
			t.Fatalf("queue %d has %d bytes, %d of answers, %d messages, %d dead, %d held, and counts %+v", owner, bytes, answers, messages, dead, held, s)
		}
		if s.owner != uint32(owner) || s.n > uint32(len(s.items)) || s.n == 0 && !s.stalled && s.beside == 0 || s.n > 0 && s.sent > 0 && int(s.sent) >= len(s.at(0).bytes) {
			t.Fatalf("queue %d is not so: %+v", owner, s)
		}
		if s.class != 0 {
			listed++
		}
		all, kernel, used = all+int64(bytes)+int64(s.beside), kernel+int64(s.kernel), used+int64(held)
		if s.stalled {
			stalled++
		}
	}
	for key, s := range m.streams {
		if s.Queued() != queued[s] {
			t.Fatalf("%s has %d messages in the queue, and counts %d", key, queued[s], s.Queued())
		}
	}
	k, n := h.KernelBytes()
	if h.Bytes() != all || k != kernel || n != stalled || h.InUse() != inUse || m.budget.Used() != used {
		t.Fatalf("%d bytes, %d of the kernel, %d stalled, %d in use, %d of the budget; counted are %d, %d, %d, %d, %d", all, kernel, stalled, inUse, used, h.Bytes(), k, n, h.InUse(), m.budget.Used())
	}
	m.checkSizes(listed)
}

// checkSizes looks at the list of large queues.
func (m *machine) checkSizes(listed int) {
	l := &m.shared.sizes
	for class, head := range l.heads {
		n := 0
		for s := head; s != nil; s = s.next {
			n++
			if int(s.class) != class || s.held < l.least(class) || s.next != nil && s.next.prev != s {
				m.t.Fatalf("a queue of class %d and %d bytes is listed in %d", s.class, s.held, class)
			}
		}
		if listed -= n; n != l.counts[class] || (l.nonzero[class/64]&(1<<(class%64)) != 0) != (n > 0) {
			m.t.Fatalf("%d are listed in class %d, which counts %d", n, class, l.counts[class])
		}
	}
	if listed != 0 {
		m.t.Fatalf("%d queues are large and not listed", listed)
	}
	owner, held, ok := m.shared.Largest()
	for _, x := range m.queues {
		if h := x.q.Held(); h > held+held/8 && x.q.s.class > 0 {
			m.t.Fatalf("one of %d bytes is a largest (%v), and another has %d", held, ok, h)
		}
	}
	if other, larger := m.shared.LargerThan(held); larger || ok && m.queues[owner].q.Held() != held {
		m.t.Fatalf("queue %d is larger than the largest, %d", other, owner)
	}
}

// Whatever is pushed, dropped and written in whatever parts: each frame arrives once and whole, as
// it was pushed, in the order that priorities allow, unless it was dropped; and what is counted is
// there.
func TestQueueIsTheSimpleOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			owner := rapid.IntRange(0, len(m.queues)-1).Draw(t, "owner")
			x := m.queues[owner]
			switch rapid.IntRange(0, 13).Draw(t, "op") {
			case 0, 1, 2, 3, 4, 5:
				for range rapid.SampledFrom([]int{1, 1, 3, 40}).Draw(t, "pushes") {
					m.push(owner)
				}
			case 6, 7:
				m.write(owner)
			case 8, 9:
				m.drop(owner)
			case 10:
				m.replace(owner)
			case 11:
				if x.q.IsEmpty() || rapid.Bool().Draw(t, "goes on") {
					x.q.Resume()
				} else {
					x.q.Stall(m.ms, rapid.IntRange(0, 200_000).Draw(t, "kernel"), 0)
				}
			case 12:
				m.ms += int64(rapid.IntRange(1, 400).Draw(t, "ms"))
				m.wall += uint64(rapid.IntRange(1, 200).Draw(t, "wall"))
				m.shared.SetTime(uint32(m.ms), m.wall)
			case 13:
				x.q.SetBeside(m.shared, uint32(owner), rapid.SampledFrom([]int{0, 0, 1, 100_000}).Draw(t, "beside"))
			}
			m.check()
		}
		for owner, x := range m.queues {
			for x.q.Len() > 0 {
				m.write(owner)
				m.check()
			}
			x.q.LetGo()
			for _, p := range x.pushed {
				if !p.arrived && !p.dropped {
					t.Fatalf("frame %d of queue %d (topic %q) has not arrived", p.number, owner, p.topic)
				}
			}
			if len(x.socket) != 0 {
				t.Fatalf("%d bytes are left of a frame", len(x.socket))
			}
		}
		if m.budget.Used() != 0 || m.shared.InUse() != 0 {
			t.Fatalf("%d bytes are used by %d queues in the end", m.budget.Used(), m.shared.InUse())
		}
	})
}
