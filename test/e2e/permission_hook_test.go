package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// engine is a policy engine that answers as AuthZEN 1.0 says. Its answers hold for a second.
type engine struct {
	mu     sync.Mutex
	grants map[string]bool // "user action id"
	dead   bool
}

// evaluation is a question of AuthZEN.
type evaluation struct {
	Subject struct {
		Type, ID   string
		Properties struct {
			Issuer string
		}
	}
	Action   struct{ Name string }
	Resource struct{ Type, ID string }
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var q evaluation
	if err := json.NewDecoder(r.Body).Decode(&q); e.dead || err != nil || r.URL.Path != "/access/v1/evaluation" || q.Subject.Type != "user" || q.Subject.Properties.Issuer == "" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	allowed := e.grants[q.Subject.ID+" "+q.Action.Name+" "+q.Resource.ID]
	_, _ = fmt.Fprintf(w, `{"decision": %v, "context": {"cache_seconds": 1, "reason": "not yours"}}`, allowed)
}

func (e *engine) set(dead bool, grants ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead, e.grants = dead, map[string]bool{}
	for _, g := range grants {
		e.grants[g] = true
	}
}

// anyFrame is the next frame, or the end of the test.
func anyFrame(t *testing.T, c *wireclient.Client) any {
	t.Helper()
	ft, body, err := c.Next(patient)
	if err != nil {
		t.Fatal(err)
	}
	m, err := wireclient.Frame(ft, body)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What tokens do not grant a policy engine may: to subscribe, publish and claim. It takes all of it
// back under live connections; while it is dead nothing is granted by it, and what it has granted
// ends within a second after its answer has run out.
func TestAPolicyEngineSaysWhatUsersMayDo(t *testing.T) {
	t.Parallel()
	e := &engine{}
	pdp := httptest.NewServer(e)
	t.Cleanup(pdp.Close)
	is := tokentest.New(t)
	file := is.File(t)
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) {
		for i := range s.Edges {
			x := &s.Edges[i]
			x.Open, x.Issuers, x.PermissionHook, x.OutboundAllow = false, file, pdp.URL+"/access/v1/evaluation", []string{"127.0.0.1"}
		}
	}})
	putNamespace(t, m, "room", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	putNamespace(t, m, "seat", &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true}})
	all := []string{"ann subscribe room/1", "ann publish room/1", "ann claim seat/1"}
	e.set(false, all...)
	ann, _ := comeIn(t, m, &wirev1.Hello{Token: is.Token("ann", map[string]any{"pm_sub": []string{"room/own"}}), ClientId: "phone"})
	claim := func(id uint32) {
		ann.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: "seat/1"})
	}

	ann.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/own"})
	ann.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/1"})
	ann.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "room/1", Payload: []byte("hi")})
	if msg := ann.Message(); msg.GetFrom() != "ann" || string(msg.GetPayload()) != "hi" {
		t.Fatalf("ann got %v", msg)
	}
	claim(3)
	st, is1 := anyFrame(t, ann).(*wirev1.ClaimState)
	if !is1 || st.GetState() != wirev1.ClaimState_STATE_GRANTED {
		t.Fatalf("the claim: %v", st)
	}
	for id, send := range map[uint32]func(id uint32){
		10: func(id uint32) {
			ann.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: "room/2"})
		},
		11: func(id uint32) {
			ann.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: "room/+"})
		},
		12: func(id uint32) {
			ann.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: "room/2"})
		},
		13: func(id uint32) {
			ann.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: "seat/2"})
		},
	} {
		if send(id); true {
			if no := ann.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN || no.GetRef() != id || no.GetMessage() != "the permission hook does not allow it (rule permission-hook): not yours" {
				t.Errorf("request %d: %v", id, no)
			}
		}
	}

	// Taken back: the answers run out within a second, and all that they granted within one more.
	e.set(false)
	began := time.Now()
	for ended, released := false, false; !ended || !released; {
		switch got := anyFrame(t, ann).(type) {
		case *wirev1.Unsubscribed:
			if ended = true; got.GetId() != 2 || got.GetCode() != wirev1.Code_CODE_FORBIDDEN {
				t.Fatalf("got %v", got)
			}
		case *wirev1.ClaimState:
			if released = true; got.GetState() != wirev1.ClaimState_STATE_RELEASED || got.GetCode() != wirev1.Code_CODE_FORBIDDEN {
				t.Fatalf("got %v", got)
			}
		default:
			t.Fatalf("got %v", got)
		}
	}
	// of a machine at work; TestASubscriptionLastsAsLongAsItIsAllowed is exact
	const late = 10 * time.Second
	if took := time.Since(began); took > late {
		t.Errorf("it was taken back after %s", took)
	} else {
		t.Logf("taken back after %s", took)
	}
	m.Publish(t, "room/1", "not for ann")
	m.Publish(t, "room/own", "for ann")
	if msg := ann.Message(); string(msg.GetPayload()) != "for ann" {
		t.Fatalf("ann got %v", msg)
	}

	// Dead: UNAVAILABLE, and the connection stays; what was granted before ends.
	e.set(false, all...)
	again := func() *wirev1.Subscribed {
		for deadline := time.Now().Add(patient); ; {
			ann.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 20, Filter: "room/1"})
			switch got := anyFrame(t, ann).(type) {
			case *wirev1.Subscribed:
				return got
			case *wirev1.Error: // a no, or that nobody answers, from before
				if time.Now().After(deadline) {
					t.Fatal(got)
				}
				timer := time.NewTimer(200 * time.Millisecond)
				<-timer.C
			default:
				t.Fatalf("got %v", got)
			}
		}
	}
	again()
	e.set(true)
	began = time.Now()
	if got, is := anyFrame(t, ann).(*wirev1.Unsubscribed); !is || got.GetId() != 20 || got.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatalf("got %v", got)
	}
	t.Logf("ended %s after the engine died", time.Since(began))
	claim(21)
	if no := ann.Error(); no.GetCode() != wirev1.Code_CODE_UNAVAILABLE || no.GetRef() != 21 || no.GetRetryAfterMs() == 0 {
		t.Errorf("while the engine is dead: %v", no)
	}
	e.set(false, all...)
	again()
	m.Publish(t, "room/1", "for ann again")
	if msg := ann.Message(); string(msg.GetPayload()) != "for ann again" {
		t.Fatalf("ann got %v", msg)
	}
}

// While a policy engine does not answer, those whose requests wait for it wait alone: others on the
// same event loop are served.
func TestNobodyWaitsForAnotherUsersPermission(t *testing.T) {
	t.Parallel()
	const many = 50
	asked, goOn := make(chan struct{}, many), make(chan struct{})
	pdp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-goOn
		_, _ = fmt.Fprint(w, `{"decision": true}`)
	}))
	t.Cleanup(pdp.Close)
	is := tokentest.New(t)
	file := is.File(t)
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) {
		for i := range s.Edges {
			x := &s.Edges[i]
			x.Open, x.Issuers, x.PermissionHook, x.PermissionHookTimeout, x.Loops, x.OutboundAllow = false, file, pdp.URL, time.Minute, 1, []string{"127.0.0.1"}
		}
	}})
	putNamespace(t, m, "room", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	var waiting []*wireclient.Client
	for i := range many {
		c, _ := comeIn(t, m, &wirev1.Hello{Token: is.Token(fmt.Sprint("user-", i), nil), ClientId: "phone"})
		c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
		waiting = append(waiting, c)
	}
	for range many {
		<-asked
	}
	bob, _ := comeIn(t, m, &wirev1.Hello{Token: is.Token("bob", map[string]any{"pm_sub": "room/own", "pm_pub": "room/own"}), ClientId: "phone"})
	bob.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/own"})
	for i := range 20 {
		bob.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "room/own", Payload: fmt.Append(nil, i)})
		if msg := bob.Message(); string(msg.GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("bob got %v", msg)
		}
	}
	close(goOn)
	for _, c := range waiting {
		wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	}
}
