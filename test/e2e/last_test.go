package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

var keepLast = &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST}

// got checks the next message that a client gets.
func got(t *testing.T, c *wireclient.Client, topic string, seq uint64, payload string) {
	t.Helper()
	if m := c.Message(); m.GetTopic() != topic || m.GetSeq() != seq || string(m.GetPayload()) != payload {
		t.Fatalf("got %s/%d %q, want %s/%d %q", m.GetTopic(), m.GetSeq(), m.GetPayload(), topic, seq, payload)
	}
}

// What topics keep comes first, whether the topic is named or found, also from another edge and
// after the store was started again; what was deleted does not come, nor does it to who has it, or
// wants none.
func TestLastMessagesComeFirst(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]func() string{"sqlite": func() string { return "" }, "postgres": func() string { return pgtest.URL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := harness.Start(t, harness.Options{DB: db(), Edges: 2, Routers: 2})
			putNamespace(t, m, "state", keepLast)
			m.Publish(t, "state/lamp", "off")
			m.Publish(t, "state/lamp", "on")
			m.Publish(t, "state/door", "open")
			m.Publish(t, "state/door", "")
			m.Publish(t, "state/hall/lamp", "dim")
			m.Publish(t, "room/1", "hello")
			look := func() {
				t.Helper()
				for _, addr := range m.EdgeAddrs {
					c, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: "phone"})
					if s := c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/lamp"}); s.GetHead() != 1 || !s.GetRecovered() {
						t.Fatalf("%v", s)
					}
					got(t, c, "state/lamp", 2, "on")
					if s := c.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "state/door"}); s.GetHead() != 2 {
						t.Fatalf("%v", s)
					}
					d, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: "wall"})
					if s := d.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "#"}); len(s.GetPositions()) < 4 {
						t.Fatalf("%v", s)
					}
					values := map[string]string{}
					for range 2 {
						v := d.Message()
						values[v.GetTopic()] = string(v.GetPayload())
					}
					if values["state/lamp"] != "on" || values["state/hall/lamp"] != "dim" {
						t.Fatalf("with wildcards: %v", values)
					}
					e, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: "late"})
					e.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/lamp", SkipLast: true})
					e.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "state/hall/lamp", Positions: []*wirev1.Position{{Topic: "state/hall/lamp", Seq: 1}}})
					for _, c := range []*wireclient.Client{c, d, e} { // nothing else was on its way
						c.Subscribe(&wirev1.Subscribe{Id: 9, Filter: "room/end"})
					}
					m.Publish(t, "room/end", "end")
					for _, c := range []*wireclient.Client{c, d, e} {
						if msg := c.Message(); msg.GetTopic() != "room/end" {
							t.Fatalf("%s/%d came, too", msg.GetTopic(), msg.GetSeq())
						}
						c.Close()
					}
				}
			}
			look()
			m.RestartStore(t)
			look()

			api := pushmeshv1.NewKeptServiceClient(m.Router(t))
			c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "phone"})
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/lamp"})
			got(t, c, "state/lamp", 2, "on")
			if _, err := api.Delete(t.Context(), &pushmeshv1.KeptServiceDeleteRequest{Topic: "state/lamp"}); err != nil {
				t.Fatal(err)
			}
			got(t, c, "state/lamp", 3, "")
			answer, err := api.List(t.Context(), &pushmeshv1.KeptServiceListRequest{Filter: "state/#"})
			if err != nil || len(answer.GetKept()) != 1 || answer.GetKept()[0].GetTopic() != "state/hall/lamp" || answer.GetKept()[0].GetSeq() != 1 {
				t.Fatalf("%v, %v", answer, err)
			}
			_, err = api.Delete(t.Context(), &pushmeshv1.KeptServiceDeleteRequest{Topic: "state/lamp"})
			if code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
				t.Errorf("deleted twice: %v", err)
			}
			_, err = api.Delete(t.Context(), &pushmeshv1.KeptServiceDeleteRequest{Topic: "room/1"})
			if code.Of(err) != wirev1.Code_CODE_CONFLICT {
				t.Errorf("deleted where nothing is kept: %v", err)
			}
		})
	}
}

// A namespace keeps so many, and says so to who publishes one more.
func TestKeptTopicsAreBounded(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	putNamespace(t, m, "state", &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST, MaxKept: 2})
	m.Publish(t, "state/1", "x")
	m.Publish(t, "state/2", "x")
	m.Publish(t, "state/2", "y")
	api := pushmeshv1.NewPublishServiceClient(m.Router(t))
	_, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "state/3", Payload: []byte("x")})
	if code.Of(err) != wirev1.Code_CODE_TOO_MANY_TOPICS {
		t.Fatalf("a third topic: %v", err)
	}
	m.Publish(t, "state/1", "")
	m.Publish(t, "state/3", "x")
}

// view is what a program knows of topics from what its subscription brought.
type view struct {
	mu     sync.Mutex
	values map[string]string
	seqs   map[string]uint64
	wrong  string
}

func (v *view) take(_ context.Context, d *pushmesh.Delivery) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.Seq <= v.seqs[d.Topic] {
		v.wrong = fmt.Sprintf("%s/%d after %d", d.Topic, d.Seq, v.seqs[d.Topic])
	}
	v.seqs[d.Topic] = d.Seq
	if delete(v.values, d.Topic); len(d.Payload) > 0 {
		v.values[d.Topic] = string(d.Payload)
	}
	return nil
}

func (v *view) equals(want map[string]string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := len(v.values) == len(want)
	for name, value := range want {
		same = same && v.values[name] == value
	}
	return same
}

// Whatever is published and deleted while programs subscribe: what each saw last is what is kept,
// and nothing comes twice or behind what is newer.
func TestProgramsKnowWhatIsKept(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	putNamespace(t, m, "state", keepLast)
	random := rand.New(rand.NewPCG(21, 77))
	topics := []string{"state/1", "state/2", "state/2/x", "state/3"}
	want := map[string]string{}
	var views []*view
	for step := range 300 {
		name := topics[random.IntN(len(topics))]
		payload := ""
		if random.IntN(4) > 0 {
			payload = fmt.Sprint("value ", step)
		}
		m.Publish(t, name, payload)
		if delete(want, name); payload != "" {
			want[name] = payload
		}
		if step%10 == 5 {
			s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs[step/10%2 : step/10%2+1]})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = closing.Close(s) })
			v := &view{values: map[string]string{}, seqs: map[string]uint64{}}
			subscribed := make(chan error, 1)
			go func() { // beside what is published
				_, err := s.Subscribe(t.Context(), "state/#", v.take)
				subscribed <- err
			}()
			t.Cleanup(func() {
				if err := <-subscribed; err != nil {
					t.Error(err)
				}
			})
			views = append(views, v)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if !slices.ContainsFunc(views, func(v *view) bool { return !v.equals(want) }) {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("programs see something else than %v", want)
		}
	}
	for _, v := range views {
		if v.wrong != "" {
			t.Error(v.wrong)
		}
	}
}
