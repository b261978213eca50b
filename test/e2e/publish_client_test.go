package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// answer to one Publish: one of them is nil.
type answer struct {
	ok *wirev1.Published
	no *wirev1.Error
}

// frames reads the next n frames.
func frames(t *testing.T, c *wireclient.Client, n int) (all []proto.Message) {
	t.Helper()
	for range n {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatalf("after %d of %d frames: %v", len(all), n, err)
		}
		m, err := wireclient.Frame(ft, body)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// answers reads those to ids from to to, in any order.
func answers(t *testing.T, c *wireclient.Client, from, to uint32) map[uint32]answer {
	t.Helper()
	all := map[uint32]answer{}
	for _, m := range frames(t, c, int(to-from+1)) {
		switch m := m.(type) {
		case *wirev1.Published:
			all[m.GetId()] = answer{ok: m}
		case *wirev1.Error:
			all[m.GetRef()] = answer{no: m}
		default:
			t.Fatalf("got %v", m)
		}
	}
	for id := from; id <= to; id++ {
		if _, ok := all[id]; !ok {
			t.Fatalf("%d has no answer", id)
		}
	}
	return all
}

// publish sends messages in one write.
func publish(t *testing.T, c *wireclient.Client, all ...*wirev1.Publish) {
	t.Helper()
	var b []byte
	for _, p := range all {
		b = append(b, frame(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, p)...)
	}
	c.Raw(b)
}

// ask publishes one message and waits for the answer.
func ask(t *testing.T, c *wireclient.Client, p *wirev1.Publish) answer {
	t.Helper()
	publish(t, c, p)
	return answers(t, c, p.GetId(), p.GetId())[p.GetId()]
}

// open makes a namespace where clients may publish.
func open(t *testing.T, m *harness.Mesh, prefix string, p *pushmeshv1.Policy) {
	t.Helper()
	p.ClientPublish = true
	change(t, m, prefix, p)
}

func change(t *testing.T, m *harness.Mesh, prefix string, p *pushmeshv1.Policy) {
	t.Helper()
	_, err := pushmeshv1.NewNamespaceServiceClient(m.Router(t)).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// writer is a client that may publish in a namespace, as its edge and its router know.
func writer(t *testing.T, m *harness.Mesh, edge int, id, prefix string) (*wireclient.Client, uint32) {
	t.Helper()
	c, welcome := wireclient.Connect(t, m.EdgeAddrs[edge], &wirev1.Hello{ClientId: id})
	probe := uint32(1 << 20)
	procmesh.Await(t, "clients may publish", func() bool {
		probe++
		return ask(t, c, &wirev1.Publish{Id: probe, Topic: prefix + "/probe"}).ok != nil
	})
	return c, welcome.GetPublishWindow()
}

// A client's whole window of messages, sent at once and again, is taken and stored in the order
// sent, each once, though each of three routers lets one producer have 16 of them unanswered, and
// 33 at once. Keys that are repeated get the first answers. A machine that stood still for a second
// is no calm mesh: one round of several must be whole.
func TestAClientsWindowsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Routers: 3})
	open(t, m, "chat", &pushmeshv1.Policy{Durable: true, ProducerInFlight: 50, ProducerRate: 1000})
	c, window := writer(t, m, 0, "writer", "chat")
	const windows = 3
	id := uint32(0)
	send := func(topic string, from uint32) (seqs []uint64, why *wirev1.Error) {
		t.Helper()
		var all []*wirev1.Publish
		for i := range window {
			all = append(all, &wirev1.Publish{Id: id + i + 1, Topic: topic, Payload: fmt.Append(nil, from+i), DedupeKey: fmt.Sprint("key-", from+i)})
		}
		publish(t, c, all...)
		got := answers(t, c, id+1, id+window)
		for i := range window {
			if a := got[id+i+1]; a.no != nil {
				why = a.no
			} else {
				seqs = append(seqs, a.ok.GetSeq())
			}
		}
		id += window
		return seqs, why
	}
rounds:
	for round := range 20 {
		topic := fmt.Sprint("chat/", round)
		for from := range uint32(windows + 1) { // the first again at the end
			from = from%windows*window + 1
			seqs, why := send(topic, from)
			if why != nil {
				t.Logf("round %d: %v", round, why)
				continue rounds
			}
			for i, seq := range seqs {
				if seq != uint64(from)+uint64(i) {
					t.Fatalf("message %d has seq %d", from+uint32(i), seq)
				}
			}
		}
		sub, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
		sub.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true, Start: wirev1.Start_START_EARLIEST})
		expect(t, sub, 1, uint64(windows*window))
		return
	}
	t.Error("a client within its window was always refused")
}

// What a namespace says of clients' messages holds, at first and from a second after it changed.
func TestClientsPublishWhereTheyMay(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	change(t, m, "shut", &pushmeshv1.Policy{Durable: true})
	open(t, m, "open", &pushmeshv1.Policy{Durable: true, MaxPayload: 100})
	c, _ := writer(t, m, 0, "", "open")
	id := uint32(0)
	code := func(topic string, payload int) wirev1.Code {
		t.Helper()
		id++
		return ask(t, c, &wirev1.Publish{Id: id, Topic: topic, Payload: []byte(strings.Repeat("x", payload))}).no.GetCode()
	}
	for _, w := range []struct {
		topic   string
		payload int
		want    wirev1.Code
	}{
		{"open/1", 100, wirev1.Code_CODE_OK},
		{"open/1", 101, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		{"open/1", 1 << 19, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		{"open//1", 1, wirev1.Code_CODE_BAD_TOPIC},
		{"open/+", 1, wirev1.Code_CODE_BAD_TOPIC},
		{"shut/1", 1, wirev1.Code_CODE_FORBIDDEN},
		{"room/1", 1, wirev1.Code_CODE_FORBIDDEN},
		{"nowhere", 1, wirev1.Code_CODE_FORBIDDEN},
		{"$events/1", 1, wirev1.Code_CODE_FORBIDDEN},
	} {
		if got := code(w.topic, w.payload); got != w.want {
			t.Errorf("%d bytes to %s: %v, want %v", w.payload, w.topic, got, w.want)
		}
	}
	best := time.Hour
	for round := 0; best > time.Second; round++ {
		if round == 10 {
			t.Fatalf("changed at best after %v", best)
		}
		took := time.Duration(0)
		for _, may := range []bool{true, false} {
			change(t, m, "shut", &pushmeshv1.Policy{Durable: true, ClientPublish: may})
			want := wirev1.Code_CODE_FORBIDDEN
			if may {
				want = wirev1.Code_CODE_OK
			}
			changed := time.Now()
			procmesh.Await(t, want.String(), func() bool { return code("shut/1", 1) == want })
			took = max(took, time.Since(changed))
		}
		best = min(best, took)
	}
}

// A namespace's limits of a producer are a client's, by its id: on another connection, at another
// edge, they are no others. What is beyond publish_window the edge refuses itself, at once, and
// goes on reading.
func TestAClientsLimits(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2})
	open(t, m, "few", &pushmeshv1.Policy{ProducerRate: 1}) // and ten at once
	// in one burst at least: a machine that stood still answers all at once
	prompt := false
	// a router seemed to be: what the burst came to tells of no limit
	away := false
	burst := func(edge int, client string) (ok int) {
		t.Helper()
		c, welcome := wireclient.Connect(t, m.EdgeAddrs[edge], &wirev1.Hello{ClientId: client})
		n := welcome.GetPublishWindow()
		var all []*wirev1.Publish
		for id := range 2 * n {
			all = append(all, &wirev1.Publish{Id: id + 1, Topic: "few/1"})
		}
		publish(t, c, all...)
		c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 5})
		last, pong, beyond := 0, 0, 0
		for i, f := range frames(t, c, 2*int(n)+1) {
			switch f := f.(type) {
			case *wirev1.Pong:
				pong = i
			case *wirev1.Published:
				ok, last = ok+1, i
			case *wirev1.Error:
				away = away || f.GetCode() == wirev1.Code_CODE_UNAVAILABLE
				if f.GetCode() != wirev1.Code_CODE_RATE_LIMITED && f.GetCode() != wirev1.Code_CODE_UNAVAILABLE || f.GetRetryAfterMs() == 0 {
					t.Fatalf("refused with %v", f)
				}
				if last = i; f.GetRef() == 2*n {
					beyond = i
				}
			}
		}
		t.Logf("Pong is frame %d, what is beyond the window %d, the last answer of a router %d", pong, beyond, last)
		prompt = prompt || !away && pong < last && beyond < last
		return ok
	}
	for round := 0; round == 0 || away; round++ {
		if round == 10 {
			t.Fatal("routers seemed to be away in every round")
		}
		for edge := range m.EdgeAddrs {
			writer(t, m, edge, fmt.Sprint("somebody-", round), "few")
		}
		away = false
		greedy, modest := fmt.Sprint("greedy-", round), fmt.Sprint("modest-", round)
		began := time.Now()
		n := burst(0, greedy) + burst(1, greedy)
		if most := 11 + int(time.Since(began)/time.Second); n < 10 && !away || n > most {
			t.Errorf("%d messages of one client were taken, which may send ten at once and one a second (%d)", n, most)
		}
		if n := burst(1, modest); n < 10 && !away {
			t.Errorf("%d of another client", n)
		}
	}
	if !prompt {
		t.Error("Ping, and what is beyond the window, waited for the window's answers")
	}
}

// Without NATS a client's message has no way to a router: it is refused at once, ephemeral or
// durable, and the connection stays. With NATS it is taken again.
func TestClientsPublishWithoutNATS(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Proxy: true})
	open(t, m, "kept", &pushmeshv1.Policy{Durable: true})
	open(t, m, "live", &pushmeshv1.Policy{})
	c, _ := writer(t, m, 0, "", "kept")
	id := uint32(0)
	try := func(topic string) *wirev1.Error {
		t.Helper()
		id++
		return ask(t, c, &wirev1.Publish{Id: id, Topic: topic}).no
	}
	for _, topic := range []string{"kept/1", "live/1"} {
		procmesh.Await(t, topic+" is taken", func() bool { return try(topic) == nil })
	}
	m.Proxy.SetDown(true)
	for _, topic := range []string{"kept/1", "live/1"} {
		procmesh.Await(t, topic+" is refused", func() bool {
			why := try(topic)
			return why.GetCode() == wirev1.Code_CODE_UNAVAILABLE && why.GetRetryAfterMs() > 0
		})
	}
	m.Proxy.SetDown(false)
	for _, topic := range []string{"kept/1", "live/1"} {
		procmesh.Await(t, topic+" is taken again", func() bool { return try(topic) == nil })
	}
}

// Clients of an address make as many topics as their edge lets them; topics that are there, and an
// edge that exempts the address, take their messages.
func TestTopicsMadeByClientsHaveAQuota(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Change: func(s *inprocess.Settings) {
		s.Edges[0].AddressTopics, s.Edges[1].AddressTopics = 2, 2
		s.Edges[1].ExemptFrom = []string{"127.0.0.0/8"}
	}})
	putNamespace(t, m, "made", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	putNamespace(t, m, "passing", &pushmeshv1.Policy{ClientPublish: true})
	var clients []*wireclient.Client
	for i := range 2 {
		c, _ := wireclient.Connect(t, m.EdgeAddrs[i], &wirev1.Hello{Version: 1, ClientId: fmt.Sprint("ann ", i)})
		clients = append(clients, c)
	}
	for i, x := range []struct {
		edge  int
		topic string
		taken bool
	}{
		{0, "made/1", true},
		{0, "made/2", true},
		{0, "made/3", false},
		{0, "made/1", true},
		{0, "passing/3", true},
		{1, "made/3", true},
		{1, "made/4", true},
		{1, "made/5", true},
		{0, "made/6", false},
	} {
		a := ask(t, clients[x.edge], &wirev1.Publish{Id: uint32(i + 1), Topic: x.topic, Payload: []byte("x")})
		if x.taken != (a.ok != nil) {
			t.Fatalf("step %d: %v", i, a)
		}
		if !x.taken && (a.no.GetCode() != wirev1.Code_CODE_RATE_LIMITED || a.no.GetRetryAfterMs() == 0 || !strings.Contains(a.no.GetMessage(), "--address-topics")) {
			t.Errorf("step %d: %v", i, a.no)
		}
	}
}
