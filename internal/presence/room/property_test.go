package room

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// conn is a connection of the model.
type conn struct {
	user    string
	state   string
	stateAt uint64
}

// model is what is so, by connection.
type model struct {
	conns map[uint64]*conn
	clock uint64
}

func (m *model) users() map[string]string {
	states, at, by := map[string]string{}, map[string]uint64{}, map[string]uint64{}
	for id, c := range m.conns {
		if _, there := states[c.user]; !there || c.stateAt > at[c.user] || c.stateAt == at[c.user] && id > by[c.user] {
			states[c.user], at[c.user], by[c.user] = c.state, c.stateAt, id
		}
	}
	return states
}

// client folds what it is told, as clients do, and fails where a join or a leave is told twice.
type client struct {
	t       *testing.T
	members map[string]string
	counts  bool
	count   uint64
	begun   bool
	joins   map[string]int
	leaves  map[string]int
}

func newClient(t *testing.T) *client {
	return &client{t: t, members: map[string]string{}, joins: map[string]int{}, leaves: map[string]int{}}
}

func (c *client) take(p *wirev1.Presence) {
	if p == nil {
		return
	}
	c.count = p.GetCount()
	if p.GetSnapshot() {
		c.begun, c.counts = true, p.GetCountsOnly()
		clear(c.members)
		for _, m := range p.GetMembers() {
			c.members[m.GetUser()] = string(m.GetState())
		}
		return
	}
	if !c.begun || c.counts {
		c.t.Fatalf("a change without members to change: %v", p)
	}
	for _, m := range p.GetMembers() {
		was, had := c.members[m.GetUser()]
		if had && was == string(m.GetState()) {
			c.t.Fatalf("%s was told of twice", m.GetUser())
		}
		if !had {
			c.joins[m.GetUser()]++
		}
		c.members[m.GetUser()] = string(m.GetState())
	}
	for _, name := range p.GetLeft() {
		if _, had := c.members[name]; !had {
			c.t.Fatalf("%s left, and was not there", name)
		}
		c.leaves[name]++
		delete(c.members, name)
	}
}

// world is a router's room, another one that takes over, and an edge, with frames between them that
// are lost, doubled and overtaken.
type world struct {
	t      *testing.T
	rnd    *rand.Rand
	now    time.Time
	model  model
	rules  Rules
	room   *Room
	runs   uint64
	view   *View
	client *client
	frames [][]byte
	lossy  bool
}

func newWorld(t *testing.T, seed uint64, rules Rules) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1000, 0), rules: rules, model: model{conns: map[uint64]*conn{}}, view: NewView("room/1"), client: newClient(t)}
	w.takeOver()
	return w
}

// takeOver has another router follow the topic.
func (w *world) takeOver() {
	w.runs++
	w.room = New("room/1", w.runs, w.rules)
	w.restream()
	w.room.Start()
}

// restream has the room take in a snapshot of its members, as after a stream of them has ended.
func (w *world) restream() {
	w.room.Begin()
	for id, c := range w.model.conns {
		w.room.Put(w.now, id, c.user, []byte(c.state), c.stateAt)
	}
	w.room.End(w.now)
}

func (w *world) step() {
	ids := slices.Sorted(maps.Keys(w.model.conns))
	switch n := w.rnd.IntN(20); {
	case n < 7:
		id := w.rnd.Uint64N(1 << 40)
		if w.model.conns[id] == nil {
			w.model.conns[id] = &conn{user: fmt.Sprint("u", w.rnd.IntN(12))}
			w.room.Put(w.now, id, w.model.conns[id].user, nil, 0)
		}
	case n < 13 && len(ids) > 0:
		id := ids[w.rnd.IntN(len(ids))]
		delete(w.model.conns, id)
		w.room.Remove(w.now, id)
	case n < 15 && len(ids) > 0:
		id := ids[w.rnd.IntN(len(ids))]
		c := w.model.conns[id]
		w.model.clock++
		c.state, c.stateAt = fmt.Sprint(w.rnd.IntN(3)), w.model.clock
		w.room.Put(w.now, id, c.user, []byte(c.state), c.stateAt)
	case n == 15 && w.rnd.IntN(4) == 0: // an edge is killed: many leave at once
		for _, id := range ids {
			if id%3 == 0 {
				delete(w.model.conns, id)
				w.room.Remove(w.now, id)
			}
		}
	case n == 16 && w.rnd.IntN(8) == 0:
		w.takeOver()
	case n == 17 && w.rnd.IntN(4) == 0:
		w.restream()
	}
	w.pass(time.Duration(w.rnd.IntN(120)) * time.Millisecond)
}

// pass lets time pass: updates are sent, frames come, and the edge renews its lease each second.
func (w *world) pass(d time.Duration) {
	before := w.now
	w.now = w.now.Add(d)
	if u := w.room.Update(w.now); u != nil {
		w.send(u)
	}
	w.deliver()
	if w.now.Unix() != before.Unix() {
		run, version := w.view.Version()
		if r, v := w.room.Version(); r != run || v != version {
			w.send(w.room.Snapshot())
		}
		w.deliver()
	}
}

func (w *world) send(u *meshv1.RoomUpdate) {
	body, err := proto.Marshal(u)
	if err != nil {
		w.t.Fatal(err)
	}
	switch n := w.rnd.IntN(10); {
	case w.lossy && n < 3:
		return
	case w.lossy && n < 5:
		w.frames = append(w.frames, body, body)
	default:
		w.frames = append(w.frames, body)
	}
}

func (w *world) deliver() {
	if w.lossy && w.rnd.IntN(3) == 0 {
		return // they wait, and others may overtake them
	}
	if w.lossy {
		w.rnd.Shuffle(len(w.frames), func(i, j int) { w.frames[i], w.frames[j] = w.frames[j], w.frames[i] })
	}
	for _, body := range w.frames {
		u := &meshv1.RoomUpdate{}
		if err := proto.Unmarshal(body, u); err != nil {
			w.t.Fatal(err)
		}
		told, _ := w.view.Apply(u)
		w.client.take(told)
		w.compareWithNewcomer()
	}
	w.frames = nil
}

// compareWithNewcomer compares what a client was told with what one is told that comes now.
func (w *world) compareWithNewcomer() {
	if !w.view.Known() {
		return
	}
	late := newClient(w.t)
	late.take(w.view.Snapshot())
	if late.counts != w.client.counts || late.count != w.client.count || !maps.Equal(late.members, w.client.members) {
		w.t.Fatalf("one that comes now is told %v, one that was there has %v", late, w.client)
	}
}

// settle lets all be told, with nothing lost.
func (w *world) settle() {
	w.lossy, w.frames = false, nil
	for range 50 {
		w.pass(100 * time.Millisecond)
	}
}

func TestEveryChangeOfAUserIsToldOnce(t *testing.T) {
	for seed := range uint64(300) {
		for _, rules := range []Rules{{Members: 200}, {Members: 4}, {Counts: true, Members: 200}} {
			w := newWorld(t, seed, rules)
			w.lossy = seed%2 == 0
			for range 200 {
				w.step()
			}
			w.settle()
			want := w.model.users()
			if w.client.count != uint64(len(want)) {
				t.Fatalf("seed %d, %+v: %d users are told of, there are %d", seed, rules, w.client.count, len(want))
			}
			if !w.client.counts && !maps.Equal(w.client.members, want) {
				t.Fatalf("seed %d, %+v: told of %v, there are %v", seed, rules, w.client.members, want)
			}
			if rules.Counts != w.client.counts && rules.Members == 200 {
				t.Fatalf("seed %d, %+v: counts only is %v", seed, rules, w.client.counts)
			}
			if len(want) > rules.Members && !w.client.counts || len(want) <= rules.Members*3/4 && !rules.Counts && w.client.counts {
				t.Fatalf("seed %d, %+v: %d users, and counts only is %v", seed, rules, len(want), w.client.counts)
			}
		}
	}
}

// quiet is a room that nothing happens to its frames.
func quiet(t *testing.T, rules Rules) *world {
	w := newWorld(t, 1, rules)
	w.settle()
	return w
}

func (w *world) put(id uint64, user string) {
	w.model.conns[id] = &conn{user: user}
	w.room.Put(w.now, id, user, nil, 0)
}

func (w *world) remove(id uint64) {
	delete(w.model.conns, id)
	w.room.Remove(w.now, id)
}

func TestAShortAbsenceIsNotTold(t *testing.T) {
	w := quiet(t, Rules{Members: 10})
	w.put(1, "ann")
	w.pass(Gather)
	w.settle()
	before := w.room.version
	w.remove(1)
	w.pass(Gather / 2)
	w.put(2, "ann")
	w.settle()
	if w.room.version != before || w.client.joins["ann"] != 1 || w.client.leaves["ann"] != 0 {
		t.Fatalf("%d joins and %d leaves are told, versions %d to %d", w.client.joins["ann"], w.client.leaves["ann"], before, w.room.version)
	}
	w.remove(2)
	w.settle()
	w.put(3, "ann")
	w.settle()
	if w.client.joins["ann"] != 2 || w.client.leaves["ann"] != 1 {
		t.Fatalf("a longer one: %d joins and %d leaves", w.client.joins["ann"], w.client.leaves["ann"])
	}
}

func TestTabsAreOneMemberAndTheNewestStateCounts(t *testing.T) {
	w := quiet(t, Rules{Members: 10})
	w.put(1, "ann")
	w.put(2, "ann")
	w.settle()
	for i, c := range []struct {
		id    uint64
		state string
		want  string
	}{{1, "first", "first"}, {2, "second", "second"}, {1, "third", "third"}, {2, "", ""}, {2, "fifth", "fifth"}} {
		w.model.conns[c.id].state, w.model.conns[c.id].stateAt = c.state, uint64(i+1)
		w.room.Put(w.now, c.id, "ann", []byte(c.state), uint64(i+1))
		w.settle()
		if got := w.client.members["ann"]; got != c.want || w.client.count != 1 {
			t.Fatalf("after %q of %d: %q of %d users", c.state, c.id, got, w.client.count)
		}
	}
	w.remove(2)
	w.settle()
	if got := w.client.members["ann"]; got != "third" || w.client.leaves["ann"] != 0 {
		t.Fatalf("the other tab's state is %q, %d leaves", got, w.client.leaves["ann"])
	}
}

func TestALargeRoomIsCountedAndComesBack(t *testing.T) {
	w := quiet(t, Rules{Members: 8})
	for id := range uint64(8) {
		w.put(id+1, fmt.Sprint("u", id))
	}
	if w.settle(); w.client.counts || len(w.client.members) != 8 {
		t.Fatalf("8 users: counts only is %v, %d members", w.client.counts, len(w.client.members))
	}
	w.put(9, "u9")
	if w.settle(); !w.client.counts || w.client.count != 9 || len(w.client.members) != 0 {
		t.Fatalf("9 users: %+v", w.client)
	}
	updates := 0
	for id := range uint64(1000) { // ten seconds of them
		w.put(100+id, fmt.Sprint("v", id))
		w.now = w.now.Add(10 * time.Millisecond)
		if u := w.room.Update(w.now); u != nil {
			updates++
			w.send(u)
		}
		w.deliver()
	}
	if updates < 5 || updates > 11 {
		t.Errorf("%d updates in 10 s, about one a second", updates)
	}
	for id := range uint64(1000) {
		w.remove(100 + id)
	}
	w.remove(9)
	w.remove(8)
	if w.settle(); !w.client.counts || w.client.count != 7 {
		t.Fatalf("7 users: it comes back at 6 alone: %+v", w.client)
	}
	w.remove(7)
	if w.settle(); w.client.counts || len(w.client.members) != 6 {
		t.Fatalf("6 users: %+v", w.client)
	}
}

func TestManyBytesMakeARoomLarge(t *testing.T) {
	w := quiet(t, Rules{Members: 1 << 20})
	state := strings.Repeat("x", 1<<10)
	n := uint64(MaxBytes/(1<<10) + 1)
	for id := range n {
		w.room.Put(w.now, id+1, fmt.Sprint("u", id), []byte(state), 1)
	}
	if w.settle(); !w.client.counts || w.client.count != n {
		t.Fatalf("%d users with 1 KiB: counts only is %v", n, w.client.counts)
	}
}

// What a room with many who come and go costs grows as they do: each is told once.
func TestChurnIsToldTogether(t *testing.T) {
	w := quiet(t, Rules{Members: 200})
	told, updates := 0, 0
	for i := range uint64(2000) { // a hundred come and go every second
		w.put(i+1, fmt.Sprint("u", i))
		if i >= 50 {
			w.remove(i - 49)
		}
		w.now = w.now.Add(10 * time.Millisecond)
		if u := w.room.Update(w.now); u != nil {
			updates++
			told += len(u.GetMembers()) + len(u.GetLeft())
			w.send(u)
			w.deliver()
		}
	}
	if updates > 101 || told > 4000 {
		t.Errorf("%d updates with %d entries for 4,000 changes in 20 s", updates, told)
	}
}

func TestRulesOfANamespaceChange(t *testing.T) {
	w := quiet(t, Rules{Members: 8})
	w.put(1, "ann")
	w.settle()
	for _, c := range []struct {
		rules  Rules
		counts bool
	}{{Rules{Counts: true, Members: 8}, true}, {Rules{Members: 8}, false}, {Rules{Members: 1}, false}} {
		w.rules = c.rules
		w.room.SetRules(w.now, c.rules)
		if w.settle(); w.client.counts != c.counts || w.client.count != 1 {
			t.Fatalf("%+v: counts only is %v", c.rules, w.client.counts)
		}
	}
}

func FuzzView(f *testing.F) {
	for _, u := range []*meshv1.RoomUpdate{
		{Topic: "room/1", Run: 1, Version: 1, Count: 1, Members: []*meshv1.RoomUpdate_Member{{User: "ann", State: []byte("x")}}},
		{Topic: "room/1", Run: 1, From: 1, Version: 2, Left: []string{"ann"}},
		{Topic: "room/1", Run: 1, From: 2, Version: 3, Count: 900, CountsOnly: true},
	} {
		body, err := proto.Marshal(u)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, body)
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		v, c := NewView("room/1"), 0
		for _, body := range [][]byte{one, other, one} {
			u := &meshv1.RoomUpdate{}
			if proto.Unmarshal(body, u) != nil {
				continue
			}
			told, ok := v.Apply(u)
			if told != nil {
				c++
			}
			if told != nil && (!ok || !v.Known()) {
				t.Fatalf("told %v of an update that was not taken in", told)
			}
		}
		if c == 0 && v.Known() {
			t.Fatal("something is known that nobody was told")
		}
	})
}

// Many states at once are told, and the next ones are gathered for as long as so many bytes may
// take.
func TestLongUpdatesAreToldMoreSeldom(t *testing.T) {
	now := time.Now()
	r := New("room/1", 1, Rules{Members: 200})
	r.Start()
	say := func(stateAt uint64) {
		for i := range uint64(128) {
			r.Put(now, i, fmt.Sprint("user-", i), make([]byte, 1024), stateAt)
		}
	}
	say(1)
	now = now.Add(Gather)
	if u := r.Update(now); len(u.GetMembers()) != 128 {
		t.Fatalf("told %d", len(u.GetMembers()))
	}
	r.Put(now, 0, "user-0", []byte("x"), 2)
	if at, is := r.Due(); !is || at.Sub(now) < time.Second/2 || at.Sub(now) > time.Second {
		t.Fatalf("the next one after %v", at.Sub(now))
	}
	now = now.Add(time.Second)
	if u := r.Update(now); len(u.GetMembers()) != 1 {
		t.Fatalf("told %v", u)
	}
	if r.Put(now, 0, "user-0", []byte("y"), 3); r.due.Sub(now) != Gather {
		t.Fatalf("a short one after %v", r.due.Sub(now))
	}
}

// A room for one user alone, which counts two, names the one that is left.
func TestASmallRoomComesBack(t *testing.T) {
	now := time.Now()
	r := New("room/1", 1, Rules{Members: 1})
	r.Start()
	r.Put(now, 1, "ann", nil, 0)
	r.Put(now, 2, "bob", nil, 0)
	now = now.Add(time.Second)
	if u := r.Update(now); !u.GetCountsOnly() || u.GetCount() != 2 {
		t.Fatalf("told %v", u)
	}
	r.Remove(now, 2)
	now = now.Add(2 * time.Second)
	if u := r.Update(now); u.GetCountsOnly() || len(u.GetMembers()) != 1 {
		t.Fatalf("told %v", u)
	}
}
