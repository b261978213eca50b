// Package presencerooms tells edges who is in the topics that their clients watch, by user. A room
// follows the members of its topic (presencewatch), makes of them what clients see
// (internal/presence/room), and sends each update to every edge that has asked within the last
// seconds.
package presencerooms

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/presence/room"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
)

const (
	tickEvery = 50 * time.Millisecond
	// leaseFor is how long an edge is told after it has asked, every second.
	leaseFor = 4 * time.Second
	// snapshotEvery is the least time between two snapshots for one edge: what it asked for may
	// have crossed what it was told.
	snapshotEvery = 300 * time.Millisecond
	// waitForEdges is how long a room waits for edges that do not tell of their members. Those that
	// are dead are judged to be within 13 s.
	waitForEdges = 15 * time.Second
	lookForEdges = 250 * time.Millisecond
	// largeFor is how long a topic is refused whose room took too much memory.
	largeFor = 30 * time.Second
	// frameBytes is about how many bytes one message to an edge carries; one update may be as long.
	frameBytes = 256 << 10
	// updatesField is RoomFrame.updates.
	updatesField = 3
)

// Watches opens streams of members: presencewatch.Watches.
type Watches interface {
	OpenNamed(ctx context.Context, topic string) (*presencewatch.Snapshot, *presencewatch.Stream, error)
}

// Policies of namespaces: policy.Watch.
type Policies interface {
	Table() *policy.Table
	// OnChange has f called with every table from then on.
	OnChange(f func(*policy.Table))
}

// Config of Rooms.
type Config struct {
	RouterID string
	Watches  Watches
	Policies Policies
	// Publish sends a message to NATS; what is lost is asked for again.
	Publish func(subject string, data []byte) error
	// MaxRooms at a time; further topics are refused.
	MaxRooms int
	// MaxBytes that the members of all rooms take, about; beyond it rooms are refused, and the
	// largest ones end.
	MaxBytes int
	Registry prometheus.Registerer
}

// Rooms is a lifecycle.Part, safe for concurrent use.
type Rooms struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group

	mu      sync.Mutex
	byTopic map[string]*one
	// tooLarge are the topics whose rooms took too much memory, until when they may be asked for.
	tooLarge map[string]time.Time
	due      map[*one]struct{} // that have something to tell
	out      map[presence.Source][][]byte
	bytes    int // that members take
	stopped  bool
}

// one room. Rooms.mu guards it.
type one struct {
	topic   string
	core    *room.Room
	begun   bool // all edges have told of their members
	edges   map[presence.Source]*lease
	bytes   int    // of Rooms.bytes
	whole   []byte // the snapshot of a version; nil: not made lately
	wholeOf uint64
	cancel  context.CancelFunc
}

// weigh counts what a room's members take. Where that is too much together the largest rooms end;
// fits is false where this one is among them. r.mu is held.
func (r *Rooms) weigh(x *one) (fits bool) {
	if r.byTopic[x.topic] != x {
		return true // it has ended
	}
	before := x.bytes
	x.bytes = x.core.Bytes()
	r.bytes += x.bytes - before
	for r.bytes > r.cfg.MaxBytes && x.bytes > before {
		largest := x
		for _, o := range r.byTopic {
			if o.bytes > largest.bytes {
				largest = o
			}
		}
		r.tooLarge[largest.topic] = time.Now().Add(largeFor)
		if largest == x {
			return false
		}
		r.refuse(largest, errNoMemory)
	}
	return true
}

// snapshot is all that was told, encoded once for all edges that ask in the same second.
func (x *one) snapshot() []byte {
	if _, version := x.core.Version(); x.whole == nil || x.wholeOf != version {
		x.whole, x.wholeOf = encode(x.core.Snapshot()), version
	}
	return x.whole
}

// lease of an edge.
type lease struct {
	until  time.Time
	sentAt time.Time // a snapshot
}

// New makes Rooms without rooms.
func New(cfg Config) *Rooms {
	r := &Rooms{cfg: cfg, byTopic: map[string]*one{}, tooLarge: map[string]time.Time{}, due: map[*one]struct{}{}, out: map[presence.Source][][]byte{}}
	r.metrics = newMetrics(cfg.Registry, r)
	return r
}

// Start begins to tell.
func (r *Rooms) Start(context.Context) error {
	r.group = lifecycle.NewGroup(context.Background())
	r.cfg.Policies.OnChange(func(*policy.Table) { r.policiesChanged(time.Now()) })
	r.group.Go("rooms", func(ctx context.Context) { lifecycle.Every(ctx, tickEvery, r.tick) })
	r.group.Go("rooms-leases", func(ctx context.Context) { lifecycle.Every(ctx, time.Second, r.expire) })
	return nil
}

// Stop ends every room.
func (r *Rooms) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true
	for _, x := range r.byTopic {
		r.end(x)
	}
	r.mu.Unlock()
	return r.group.Stop(ctx)
}

// Lease takes in what an edge asks, and answers.
func (r *Rooms) Lease(from presence.Source, l *meshv1.RoomLease) {
	if bus.CheckID(from.ID) != nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return // the edge asks another router
	}
	for _, t := range l.GetEnded() {
		if x := r.byTopic[t]; x != nil {
			delete(x.edges, from)
			if len(x.edges) == 0 {
				r.end(x)
			}
		}
	}
	for _, w := range l.GetWants() {
		r.want(now, from, w)
	}
	if len(l.GetWants()) > 0 && r.out[from] == nil {
		r.out[from] = [][]byte{} // that it was heard
	}
	r.unlockAndSend()
}

// want takes in what an edge asks of one topic. r.mu is held.
func (r *Rooms) want(now time.Time, from presence.Source, w *meshv1.RoomLease_Want) {
	x := r.byTopic[w.GetTopic()]
	if x == nil && (topic.Check(w.GetTopic()) != nil || r.cfg.Policies.Table().HidesMembers(w.GetTopic()) != nil) {
		return // no edge asks that, or this router hears of the policy later than the edge
	}
	if x == nil {
		var why *code.Error
		if x, why = r.begin(w.GetTopic()); why != nil {
			r.metrics.refused.WithLabelValues(code.Name(why.Code)).Inc()
			r.tell(from, refusal(w.GetTopic(), why))
			return
		}
	}
	l := x.edges[from]
	if l == nil {
		l = &lease{}
		x.edges[from] = l
	}
	l.until = now.Add(leaseFor)
	if run, version := x.core.Version(); x.begun && (run != w.GetRun() || version != w.GetVersion()) && now.Sub(l.sentAt) >= snapshotEvery {
		l.sentAt = now
		r.metrics.snapshots.Inc()
		r.tell(from, x.snapshot())
	}
}

// begin makes the room of a topic, which follows its members from now on. r.mu is held.
func (r *Rooms) begin(name string) (*one, *code.Error) {
	table := r.cfg.Policies.Table()
	if why := table.Refuses(name); why != nil {
		return nil, why
	}
	if _, is := r.tooLarge[name]; is {
		return nil, errNoMemory
	}
	if len(r.byTopic) >= r.cfg.MaxRooms || r.bytes >= r.cfg.MaxBytes {
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "the router is at its limit of topics whose members clients watch, or of their members")
	}
	ctx, cancel := context.WithCancel(r.group.Context())
	x := &one{topic: name, core: room.New(name, rand.Uint64()|1, rulesOf(table, name)), edges: map[presence.Source]*lease{}, cancel: cancel}
	r.byTopic[name] = x
	r.group.Go("room", func(context.Context) { r.follow(ctx, x) })
	return x, nil
}

func rulesOf(table *policy.Table, name string) room.Rules {
	p := table.For(name)
	return room.Rules{Counts: p.ClientPresence == pushmeshv1.ClientPresence_CLIENT_PRESENCE_COUNTS, Members: p.ClientPresenceMembers}
}

// end ends a room. r.mu is held.
func (r *Rooms) end(x *one) {
	if r.byTopic[x.topic] == x {
		delete(r.byTopic, x.topic)
		r.bytes -= x.bytes
	}
	delete(r.due, x)
	x.cancel()
}

// fail ends a room for a reason that its edges are told.
func (r *Rooms) fail(x *one, why *code.Error) {
	r.mu.Lock()
	r.refuse(x, why)
	r.unlockAndSend()
}

// refuse is fail with r.mu held.
func (r *Rooms) refuse(x *one, why *code.Error) {
	if r.byTopic[x.topic] != x {
		return
	}
	body := refusal(x.topic, why)
	for e := range x.edges {
		r.tell(e, body)
	}
	r.metrics.refused.WithLabelValues(code.Name(why.Code)).Inc()
	r.end(x)
}

// follow keeps a room up to date until it ends. A stream that ends for what passes is followed by
// another one, of which the difference is told. Where an edge is at its limit the room ends: who is
// told so may watch again, and is not shown for long what is so no more.
func (r *Rooms) follow(ctx context.Context, x *one) {
	for ctx.Err() == nil {
		err := r.stream(ctx, x)
		why := code.From(err)
		if ctx.Err() != nil {
			return
		}
		if why.RetryAfter == 0 || why.Code == wirev1.Code_CODE_OVERLOADED {
			r.fail(x, why)
			return
		}
		select {
		case <-time.After(why.RetryAfter):
		case <-ctx.Done():
		}
	}
}

// stream takes in one stream of members.
func (r *Rooms) stream(ctx context.Context, x *one) error {
	snapshot, stream, err := r.cfg.Watches.OpenNamed(ctx, x.topic)
	if err != nil {
		return err
	}
	defer stream.Close()
	members := snapshot.TakeMembers()
	r.mu.Lock()
	x.core.Begin()
	for _, m := range members {
		put(x, time.Now(), m)
	}
	fits := r.weigh(x)
	r.unlockAndSend()
	if !fits {
		return errNoMemory
	}
	if err := r.await(ctx, x, stream); err != nil {
		return err
	}
	for {
		events, err := stream.NextEvents(ctx)
		if err != nil {
			return err
		}
		if err := r.take(x, events); err != nil {
			return err
		}
	}
}

// errNoMemory ends a room: its edges are told.
var errNoMemory = code.New(wirev1.Code_CODE_OVERLOADED, "the router has no memory for the members of more topics that clients watch")

// await takes in what comes until every edge has told of its members, or has had the time to, and
// begins to tell then.
func (r *Rooms) await(ctx context.Context, x *one, stream *presencewatch.Stream) error {
	until := time.Now().Add(waitForEdges)
	for {
		events, silent, err := stream.TakeEvents()
		if err == nil {
			err = r.take(x, events)
		}
		if err != nil {
			return err
		}
		if silent == 0 || !time.Now().Before(until) {
			break
		}
		look, cancel := context.WithTimeout(ctx, lookForEdges)
		events, err = stream.NextEvents(look)
		cancel()
		if err == nil {
			err = r.take(x, events)
		}
		if err != nil && (!errors.Is(look.Err(), context.DeadlineExceeded) || ctx.Err() != nil || errors.Is(err, errNoMemory)) {
			return err
		}
	}
	now := time.Now()
	r.mu.Lock()
	x.core.End(now)
	if !x.begun && r.byTopic[x.topic] == x {
		x.begun = true
		x.core.Start()
		body := x.snapshot()
		for e, l := range x.edges {
			l.sentAt = now
			r.metrics.snapshots.Inc()
			r.tell(e, body)
		}
	}
	r.noteDue(x)
	r.unlockAndSend()
	return nil
}

func put(x *one, now time.Time, m *presence.Member) {
	x.core.Put(now, m.GetConnectionId(), presencewatch.User(m), m.GetState(), m.GetStateAt())
}

// take takes in what has changed; an error says that there is no room for it.
func (r *Rooms) take(x *one, events []presence.Event) error {
	now := time.Now()
	r.mu.Lock()
	defer r.unlockAndSend()
	for _, e := range events {
		if e.Left {
			x.core.Remove(now, e.Member.GetConnectionId())
		} else {
			put(x, now, e.Member)
		}
	}
	r.noteDue(x)
	if !r.weigh(x) {
		return errNoMemory
	}
	return nil
}

// noteDue has a room be asked for its update when that is due. r.mu is held.
func (r *Rooms) noteDue(x *one) {
	if _, is := x.core.Due(); is && x.begun && r.byTopic[x.topic] == x {
		r.due[x] = struct{}{}
	}
}

// tick tells what is due.
func (r *Rooms) tick(now time.Time) {
	r.mu.Lock()
	for x := range r.due {
		if u := x.core.Update(now); u != nil {
			body := encode(u)
			for e := range x.edges {
				r.tell(e, body)
			}
			r.metrics.updates.Inc()
		}
		if _, is := x.core.Due(); !is {
			delete(r.due, x)
		}
	}
	r.unlockAndSend()
}

// expire ends what no edge has asked for lately.
func (r *Rooms) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, until := range r.tooLarge {
		if now.After(until) {
			delete(r.tooLarge, t)
		}
	}
	for _, x := range r.byTopic {
		x.whole = nil
		for e, l := range x.edges {
			if now.After(l.until) {
				delete(x.edges, e)
			}
		}
		if len(x.edges) == 0 {
			r.end(x)
		}
	}
}

// policiesChanged has rooms go by other rules. Those of which clients see nothing any more end with
// their streams.
func (r *Rooms) policiesChanged(now time.Time) {
	table := r.cfg.Policies.Table()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.byTopic {
		x.core.SetRules(now, rulesOf(table, x.topic))
		r.noteDue(x)
	}
}

// tell queues an encoded update for an edge. r.mu is held.
func (r *Rooms) tell(to presence.Source, update []byte) { r.out[to] = append(r.out[to], update) }

// unlockAndSend gives r.mu back and sends what was queued under it. What two of them send may
// overtake each other: an edge asks again then.
func (r *Rooms) unlockAndSend() {
	if len(r.out) == 0 {
		r.mu.Unlock()
		return
	}
	out := r.out
	r.out = map[presence.Source][][]byte{}
	r.mu.Unlock()
	for to, updates := range out {
		r.send(to, updates)
	}
}

// send sends updates to an edge, or that it was heard.
func (r *Rooms) send(to presence.Source, updates [][]byte) {
	head, err := proto.Marshal(&meshv1.RoomFrame{RouterId: r.cfg.RouterID, EdgeIncarnation: to.Incarnation})
	if err != nil {
		return
	}
	for first := true; first || len(updates) > 0; first = false {
		body := append([]byte(nil), head...)
		for n := 0; len(updates) > 0 && (n == 0 || len(body)+len(updates[0]) <= frameBytes); n++ {
			body = protowire.AppendTag(body, updatesField, protowire.BytesType)
			body = protowire.AppendBytes(body, updates[0])
			updates = updates[1:]
		}
		data := protowire.AppendTag(nil, frameField, protowire.BytesType)
		_ = r.cfg.Publish(bus.EdgeRequest(to.ID), protowire.AppendBytes(data, body))
	}
}

// frameField is EdgeRequest.room_frame.
const frameField = 11

// encode makes an update once for all edges. Names and states are text and bytes that were checked:
// it always can.
func encode(u *meshv1.RoomUpdate) []byte {
	body, err := proto.Marshal(u)
	if err != nil {
		body, _ = proto.Marshal(&meshv1.RoomUpdate{Topic: u.GetTopic(), Code: wirev1.Code_CODE_INTERNAL, Reason: "the members can't be encoded"})
	}
	return body
}

func refusal(name string, why *code.Error) []byte {
	return encode(&meshv1.RoomUpdate{Topic: name, Code: why.Code, Reason: why.Message, RetryAfterMs: uint32(why.RetryAfter / time.Millisecond)})
}
