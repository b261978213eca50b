package book

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// take the step, commit it, and compare all of it.
func (w *world) take() {
	s := w.b.Take()
	w.commit(s)
	w.places()
	w.answers(s)
	w.turns(s)
	w.pushes(s)
	if !maps.Equal(s.Counts.Ended, w.m.ended) && len(s.Counts.Ended)+len(w.m.ended) > 0 {
		w.t.Fatalf("ended %v, not %v", s.Counts.Ended, w.m.ended)
	}
	w.counted(s)
	w.tied()
	w.told.step(w, s)
	w.due()
	w.listed()
	w.m.forget()
	w.saved = w.saved[:0:0]
	for _, p := range w.m.places {
		w.saved = append(w.saved, *p)
	}
}

// counted: refusals by code, and what there is.
func (w *world) counted(s *Step) {
	refused := map[wirev1.Code]int{}
	for _, a := range s.Answers {
		if c := cmp.Or(a.Code, a.State.GetCode()); c != wirev1.Code_CODE_OK && c != 0 {
			refused[c]++
		}
	}
	if !maps.Equal(s.Counts.Refused, refused) && len(s.Counts.Refused)+len(refused) > 0 {
		w.t.Fatalf("refused %v, not %v", s.Counts.Refused, refused)
	}
	want := Stats{Shards: len(w.shards()), Places: len(w.m.places)}
	for _, p := range w.m.places {
		if p.token != 0 {
			want.Holders++
		} else {
			want.Waiting++
		}
	}
	used := map[string]bool{}
	for _, r := range w.resources {
		used[r] = len(w.m.turns[r]) > 0
	}
	for _, p := range w.m.places {
		used[p.resource] = true
	}
	for at := range w.m.watches {
		used[at.resource] = true
		want.Watches++
	}
	got := w.b.Stats()
	if !w.advanced { // nodes that are gone may still be there
		used, want.Watches = nil, got.Watches
		want.Resources = got.Resources
	}
	for _, yes := range used {
		if yes {
			want.Resources++
		}
	}
	if got != want {
		w.t.Fatalf("%+v, not %+v", got, want)
	}
	if w.advanced {
		w.known()
	}
}

// known: the book knows the nodes of the model, and none that is gone.
func (w *world) known() {
	n := 0
	for name, all := range w.b.nodes {
		if len(all) == 0 {
			w.t.Fatalf("nothing is left of %s but its name", name)
		}
		for _, one := range all {
			n++
			if w.m.nodes[mNode{name, one.incarnation}] == nil {
				w.t.Fatalf("%s of life %d is gone, and still known", name, one.incarnation)
			}
		}
	}
	if n != len(w.m.nodes) {
		w.t.Fatalf("%d nodes are known, not %d", n, len(w.m.nodes))
	}
}

// tied: whom a node is to be told of is known from both sides, and how many of those who wait at a
// resource.
func (w *world) tied() {
	of := users{}
	for _, s := range w.b.shards {
		for _, p := range s.places {
			if p.bound || p.gone != 0 {
				of[userOf(p.owner)]++
			}
		}
	}
	if !maps.Equal(of, w.b.users) {
		w.t.Fatalf("of users %v are counted, there are %v", w.b.users, of)
	}
	for _, s := range w.b.shards {
		of := map[*resource]int32{}
		for _, p := range s.places {
			if p.node != nil && !p.holds() {
				of[p.r]++
			}
			if p.node != nil && (int(p.tieAt) >= len(p.node.ties) || p.node.ties[p.tieAt] != p) {
				w.t.Fatalf("%s is tied to %s, which does not know", p.owner, p.node.name)
			}
		}
		for _, r := range s.resources {
			if r.tied != of[r] {
				w.t.Fatalf("%d who wait for %s are tied, counted as %d", of[r], r.name, r.tied)
			}
		}
	}
	for _, all := range w.b.nodes {
		for _, n := range all {
			for _, p := range n.ties {
				if p.node != n || p.ended {
					w.t.Fatalf("%s is told of %s, whose place is another's or over", n.name, p.owner)
				}
			}
		}
	}
}

func (w *world) commit(s *Step) {
	seen := map[backend.ClaimKey]bool{}
	for _, row := range s.Changes.Put {
		if seen[row.ClaimKey] {
			w.t.Fatalf("%v twice", row.ClaimKey)
		}
		seen[row.ClaimKey] = true
		if row.Shard != topic.Shard(row.Resource) {
			w.t.Fatalf("%+v in another's shard", row)
		}
		w.rows[row.ClaimKey] = row
	}
	for _, k := range s.Changes.Delete {
		if _, is := w.rows[k]; seen[k] || !is {
			w.t.Fatalf("%v is deleted, put too or not at all", k)
		}
		seen[k] = true
		delete(w.rows, k)
	}
}

// places in the database are those of the model, in its order.
func (w *world) places() {
	rows := map[[2]string]backend.ClaimPlace{}
	for _, row := range w.rows {
		rows[[2]string{row.Resource, row.Owner}] = row
	}
	if len(rows) != len(w.rows) || len(rows) != len(w.m.places) {
		w.t.Fatalf("%d places of %d owners in the database, %d in the model", len(w.rows), len(rows), len(w.m.places))
	}
	for _, p := range w.m.places {
		row := rows[[2]string{p.resource, p.owner}]
		if p.got != 0 && p.token == 0 {
			if p.token = row.Token; p.token <= w.told.token[p.resource] {
				w.t.Fatalf("token %d of %s after %d", p.token, p.resource, w.told.token[p.resource])
			}
		}
		want := backend.ClaimPlace{
			ClaimKey: row.ClaimKey, Resource: p.resource, Owner: p.owner, Priority: uint8(p.priority), Token: p.token, TTL: p.ttl, JoinedAt: p.joined, GrantedAt: p.granted,
			ExpiresAt: p.expires, OfferedUntil: p.offered, Node: p.node.name, Incarnation: p.node.incarnation, Conn: p.conn, Bound: p.bound, GoneAt: p.gone,
		}
		if p.again && p.offered != 0 && row.OfferedUntil != 0 {
			want.OfferedUntil = row.OfferedUntil
		}
		if row != want || (p.got != 0) != (row.Token != 0) {
			w.t.Fatalf("the database has\n%+v, not\n%+v", row, want)
		}
	}
	for _, r := range w.resources {
		holds, line := w.m.holds(r), w.m.line(r)
		for i := 1; i < len(holds); i++ {
			if holds[i-1].token >= holds[i].token {
				w.t.Fatalf("token %d of %s was granted before %d", holds[i-1].token, r, holds[i].token)
			}
		}
		for i := 1; i < len(line); i++ {
			if line[i-1].priority == line[i].priority && rows[[2]string{r, line[i-1].owner}].Seq >= rows[[2]string{r, line[i].owner}].Seq {
				w.t.Fatalf("the database has the line of %s in another order", r)
			}
		}
		for _, p := range holds {
			w.told.token[r] = max(w.told.token[r], p.token)
		}
	}
	st := w.b.Stats()
	if got := st.Holders; got != len(slices.DeleteFunc(slices.Clone(w.m.places), func(p *mPlace) bool { return p.got == 0 })) || st.Places != len(w.m.places) {
		w.t.Fatalf("%+v of %d places", st, len(w.m.places))
	}
}

func (w *world) answers(s *Step) {
	var got []string
	for _, a := range s.Answers {
		got = append(got, read(a))
	}
	if !slices.Equal(got, w.want) {
		w.t.Fatalf("answered\n%s, not\n%s", strings.Join(got, "\n"), strings.Join(w.want, "\n"))
	}
	w.want = nil
}

// turns are the calls to make.
func (w *world) turns(s *Step) {
	asked := map[string]*mTurn{}
	for _, t := range w.m.asked {
		if t.p != nil || !t.done {
			asked[t.key] = t
		}
	}
	if len(s.Prepare) != len(w.m.asked) {
		w.t.Fatalf("asked for %v, not %d calls", s.Prepare, len(w.m.asked))
	}
	for i, a := range s.Prepare {
		var t *mTurn
		for _, o := range w.m.asked {
			if o.key == a.Resource+" "+a.Owner && !o.known {
				t = o
				break
			}
		}
		if t == nil {
			w.t.Fatalf("asked for %v", s.Prepare[i])
		}
		t.known, t.token = true, a.Token
		w.calls = append(w.calls, call{a, t})
	}
}

// pushes of each tie, in order, but for positions.
func (w *world) pushes(s *Step) {
	got := map[mTie][]string{}
	for _, p := range s.Pushes {
		st := p.GetState()
		if p.GetOwner() == "" || st.GetState() == isQueued {
			continue
		}
		k := mTie{p.Node, p.GetConn(), st.GetResource(), p.GetOwner()}
		what := strings.TrimPrefix(st.GetState().String(), "STATE_")
		if st.GetState() == isLost {
			what += " " + st.GetCode().String()
		}
		got[k] = append(got[k], what)
	}
	if fmt.Sprint(got) != fmt.Sprint(w.m.pushed) {
		w.t.Fatalf("pushed %v, not %v", got, w.m.pushed)
	}
}

// due is never late.
func (w *world) due() {
	first := uint64(1 << 63)
	for _, p := range w.m.places {
		at, _ := w.m.end(p)
		first = min(first, at)
	}
	for id, l := range w.m.nodes {
		if !l.up && slices.ContainsFunc(w.m.places, func(p *mPlace) bool { return p.node == id }) {
			first = min(first, l.gone)
		}
	}
	if at, any := w.b.Due(); first != 1<<63 && (!any || at > first) {
		w.t.Fatalf("due at %d, something happens at %d", at, first)
	}
}

// listed, by pages of any size, is everybody in order.
func (w *world) listed() {
	if rapid.IntRange(0, 3).Draw(w.t, "list") > 0 {
		return
	}
	for _, r := range w.resources {
		var want, got []string
		for _, p := range w.m.holds(r) {
			want = append(want, fmt.Sprint(p.owner, p.token, 0, p.offered != 0, p.node.name))
		}
		for i, p := range w.m.waiting(r) {
			want = append(want, fmt.Sprint(p.owner, 0, i+1, false, p.node.name))
		}
		req := &meshv1.StoreServiceListClaimsRequest{Resource: r, Limit: uint32(rapid.IntRange(1, 5).Draw(w.t, "limit"))}
		if rapid.Bool().Draw(w.t, "by prefix") {
			req.Resource, req.Prefix, req.Shard = "", r, uint32(topic.Shard(r))
		}
		for more := true; more; {
			page, err := w.b.List(req)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, p := range page.GetPlaces() {
				got = append(got, fmt.Sprint(p.GetOwner(), p.GetToken(), p.GetPosition(), p.GetOffered(), p.GetNode()))
			}
			if len(page.GetPlaces()) > int(req.GetLimit()) {
				w.t.Fatalf("%d places on a page of %d", len(page.GetPlaces()), req.GetLimit())
			}
			more, req.After = len(page.GetAfter()) > 0, page.GetAfter()
		}
		if !slices.Equal(got, want) {
			w.t.Fatalf("listed %v, not %v", got, want)
		}
	}
}
