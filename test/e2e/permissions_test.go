package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// someone asks an edge for all there is to ask for.
type someone struct {
	edge   int
	user   string              // "": without a token
	claims map[string][]string // of the token
}

// has reports whether a token grants every topic that a filter matches, of those that there are:
// it is worked out topic by topic, by rules of its own.
func (s *someone) has(claim, filter string, topics []string) bool {
	grants := s.claims[claim]
	if claim == "pm_sub" {
		grants = append([]string{"user/{user}/#"}, grants...)
	}
	for _, topic := range topics {
		granted := !matches(filter, topic)
		for _, g := range grants {
			granted = granted || matches(strings.ReplaceAll(g, "{user}", s.user), topic)
		}
		if !granted {
			return false
		}
	}
	return true
}

// matches reports whether a filter matches a topic, level by level.
func matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		switch {
		case level == "#":
			return true
		case i == len(t), level != "+" && level != t[i]:
			return false
		}
	}
	return len(f) == len(t)
}

// shut is a namespace that no client may subscribe to.
const shut = "nobody/shut"

// barred reports whether a filter matches a topic of shut, of those that there are.
func barred(filter string, topics []string) bool {
	for _, topic := range topics {
		if strings.HasPrefix(topic, shut) && matches(filter, topic) {
			return true
		}
	}
	return false
}

// all topics of some levels: what nobody names is among them, at each level.
func topicsOf(names ...[]string) []string {
	all := []string{}
	for _, name := range names[0] {
		all = append(all, name)
		if len(names) == 1 {
			continue
		}
		for _, rest := range topicsOf(names[1:]...) {
			all = append(all, name+"/"+rest)
		}
	}
	return all
}

// Whoever asks for whatever, by whichever way: it is granted where all of it is granted, and
// nothing arrives that is not.
func TestEveryVerbOfEverybodyOnEverything(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	file := is.File(t)
	const guardedEdge, acceptingEdge, openEdge = 0, 1, 2
	m := harness.Start(t, harness.Options{Edges: 3, Change: func(s *inprocess.Settings) {
		for _, i := range []int{guardedEdge, acceptingEdge} {
			s.Edges[i].Open, s.Edges[i].Issuers, s.Edges[i].OutboundAllow = false, file, []string{"127.0.0.1"}
		}
		s.Edges[acceptingEdge].ClientsWithoutToken = "accept"
	}})
	first := []string{"room", "user", "news", "jobs", "inbox", "nobody"}
	topics := topicsOf(first, []string{"1", "ann", "bob", "nobody"}, []string{"chat", "inbox", "nobody"})
	topics = append(topics, shut, shut+"/chat")
	for _, prefix := range append(first, shut) {
		subscribe := pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_GRANTED_UNSPECIFIED
		if prefix == shut {
			subscribe = pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE
		}
		putNamespace(t, m, prefix, &pushmeshv1.Policy{Durable: prefix == "jobs", ClientPublish: true, Claims: &pushmeshv1.ClaimPolicy{Clients: true}, ClientSubscribe: subscribe})
	}
	granted := map[string][]string{
		"pm_sub": {"room/+/chat", "news/#", "inbox/{user}/+", "jobs/#", "$dead/jobs"}, "pm_pub": {"room/1/chat", "inbox/{user}/#"},
		"pm_claim": {"room/+", "inbox/{user}/#"}, "pm_group": {"workers/jobs/#", "{user}/jobs/1/#"},
	}
	filters := []string{
		"room", "room/1", "room/1/chat", "room/+/chat", "room/1/+", "room/+/+", "room/#", "room/1/#", "+/1/chat", "+", "#", "+/#", "+/ann/#",
		"user/ann/inbox", "user/ann", "user/ann/#", "user/bob/inbox", "user/bob/#", "user/+/inbox", "user/#", "user",
		"news", "news/1", "news/#", "news/+/chat", "inbox/ann/chat", "inbox/bob/chat", "inbox/+/chat", "inbox/ann/#", "inbox/ann",
		"jobs/1/chat", "jobs/#", "jobs/1/#", "nobody", "nobody/#", "nobody/1/#", "nobody/+", shut, shut + "/chat", shut + "/#",
		"$dead/jobs", "$dead/room", "$dead/#", "$dead", "$events/x", "$events/#", "$x",
	}
	for name, s := range map[string]*someone{
		"ann, with grants":             {guardedEdge, "ann", granted},
		"bob, with the same":           {guardedEdge, "bob", granted},
		"ann, without grants":          {guardedEdge, "ann", nil},
		"carl, with everything":        {guardedEdge, "carl", map[string][]string{"pm_sub": {"#"}, "pm_pub": {"#"}, "pm_claim": {"#"}, "pm_group": {"workers/#", "carl/#", "others/#"}}},
		"ann, where nobody need prove": {acceptingEdge, "ann", granted},
		"nobody, where none need":      {acceptingEdge, "", nil},
		"nobody, where all may":        {openEdge, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.asksForAll(t, m, is, filters, topics)
		})
	}
}

// asksForAll asks, and then looks at what comes of all topics.
func (s *someone) asksForAll(t *testing.T, m *harness.Mesh, is *tokentest.Issuer, filters, topics []string) {
	hello := &wirev1.Hello{ClientId: "phone"}
	if s.user != "" {
		claims := map[string]any{}
		for claim, filters := range s.claims {
			claims[claim] = filters
		}
		hello.Token = is.Token(s.user, claims)
	}
	c, refusal := comeInAt(t, m.EdgeAddrs[s.edge], hello)
	if c == nil {
		t.Fatal(refusal)
	}
	ask := asker{t: t, c: c}
	keep := []uint32{}
	for _, f := range filters {
		mesh := strings.HasPrefix(f, "$")
		may := !barred(f, topics) && (s.user == "" && !mesh || s.user != "" && s.has("pm_sub", f, topics) && (!mesh || f == "$dead/jobs" && len(s.claims["pm_sub"]) == 5))
		if id := ask.want(may, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, "subscribe to "+f, func(id uint32) proto.Message { return &wirev1.Subscribe{Id: id, Filter: f} }); may {
			keep = append(keep, id)
		}
		ask.once(may, "read the last of "+f, func(id uint32) proto.Message {
			return &wirev1.Subscribe{Id: id, Filter: f, Start: wirev1.Start_START_LAST_N, Seq: 1}
		})
		for _, group := range []string{"workers", "ann", "carl", "others"} {
			member := s.user == "" || s.has("pm_group", group+"/"+f, groupTopics(group, topics))
			ask.once(may && member && !mesh, "join "+group+" for "+f, func(id uint32) proto.Message {
				return &wirev1.Subscribe{Id: id, Filter: f, Group: group}
			})
		}
		if strings.ContainsAny(f, "+#") {
			continue
		}
		ask.want(!mesh && (s.user == "" || s.has("pm_pub", f, topics)), wirev1.FrameType_FRAME_TYPE_PUBLISH, "publish to "+f, func(id uint32) proto.Message {
			return &wirev1.Publish{Id: id, Topic: f}
		})
		for _, op := range []wirev1.Claim_Op{wirev1.Claim_OP_ACQUIRE, wirev1.Claim_OP_CHECK, wirev1.Claim_OP_WATCH, wirev1.Claim_OP_LEAVE} {
			gives := op == wirev1.Claim_OP_LEAVE // what one may always
			ask.want(!mesh && (gives || s.user == "" || s.has("pm_claim", f, topics)), wirev1.FrameType_FRAME_TYPE_CLAIM, fmt.Sprint(op, " of ", f), func(id uint32) proto.Message {
				return &wirev1.Claim{Id: id, Op: op, Resource: f}
			})
		}
	}
	// What others publish now comes where it is granted.
	for _, topic := range topics {
		m.Publish(t, topic, topic)
	}
	want := map[string]bool{}
	for _, f := range filters {
		for _, topic := range topics {
			if matches(f, topic) && !barred(f, topics) && !strings.HasPrefix(f, "$") && (s.user == "" || s.has("pm_sub", f, topics)) {
				want[topic] = true
			}
		}
	}
	for len(want) > 0 {
		got := ask.next()
		msg, is := got.(*wirev1.Message)
		if !is {
			continue
		}
		if strings.HasPrefix(msg.GetTopic(), shut) {
			t.Fatalf("a message of %s comes", msg.GetTopic())
		}
		if topic := msg.GetTopic(); s.user != "" && !s.has("pm_sub", topic, []string{topic}) {
			t.Fatalf("a message of %s comes", topic)
		}
		delete(want, string(msg.GetPayload()))
	}
	if len(keep) == 0 {
		t.Error("nothing was granted")
	}
}

// groupTopics are what the filters of pm_group are about.
func groupTopics(group string, topics []string) (all []string) {
	for _, topic := range topics {
		all = append(all, group+"/"+topic)
	}
	return all
}

// asker asks, one after the other.
type asker struct {
	t  *testing.T
	c  *wireclient.Client
	id uint32
}

// next is the next frame.
func (a *asker) next() proto.Message {
	a.t.Helper()
	ft, body, err := a.c.Next(patient)
	if err != nil {
		a.t.Fatal(err)
	}
	got, err := wireclient.Frame(ft, body)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

// want asks, and says under which id, until the answer is no refusal for a while.
func (a *asker) want(may bool, ft wirev1.FrameType, what string, m func(id uint32) proto.Message) uint32 {
	a.t.Helper()
	for deadline := time.Now().Add(patient); ; {
		a.id++
		a.c.Send(ft, m(a.id))
		no := a.answer(a.id)
		switch {
		case no.GetRetryAfterMs() > 0 && time.Now().Before(deadline):
			<-time.NewTimer(time.Duration(no.GetRetryAfterMs()) * time.Millisecond).C
			continue
		case may && no != nil:
			a.t.Errorf("%s is refused: %v", what, no)
		case !may && no == nil:
			a.t.Errorf("%s is granted", what)
		case !may && no.GetCode() != wirev1.Code_CODE_FORBIDDEN && no.GetCode() != wirev1.Code_CODE_BAD_TOPIC:
			a.t.Errorf("%s: %v", what, no)
		}
		return a.id
	}
}

// answer waits for the one to id; nil: what it asked was done.
func (a *asker) answer(id uint32) *wirev1.Error {
	a.t.Helper()
	for {
		switch got := a.next().(type) {
		case *wirev1.Error:
			if got.GetRef() == id {
				return got
			}
			a.t.Fatalf("an error for nothing that was asked: %v", got)
		case interface{ GetId() uint32 }:
			if got.GetId() == id {
				return nil
			}
		}
	}
}

// once asks for a subscription and ends it.
func (a *asker) once(may bool, what string, m func(id uint32) proto.Message) {
	a.t.Helper()
	id := a.want(may, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, what, m)
	if may && !a.t.Failed() {
		a.c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
		for {
			if end, is := a.next().(*wirev1.Unsubscribed); is && end.GetId() == id {
				return
			}
		}
	}
}
