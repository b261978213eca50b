package pushmesh

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What can be said to the SDK reaches the mesh, or is refused: these tests go over every field and
// every option that there is, so that one that is added and forgotten fails them.

// some sets a field to something that is not its zero value.
func some(t *testing.T, f reflect.Value) {
	t.Helper()
	switch v := f.Addr().Interface().(type) {
	case *string:
		*v = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	case *[]byte:
		*v = []byte("x")
	case *map[string]string:
		*v = map[string]string{"k": "v"}
	case *map[string]float64:
		*v = map[string]float64{"k": 1}
	case *[]float32:
		*v = []float32{1}
	case *uint32:
		*v = 5
	case *int:
		*v = 5
	case *time.Duration:
		*v = 90 * time.Second
	case *time.Time:
		*v = time.Now().Add(time.Hour)
	case *bool:
		*v = true
	default:
		t.Fatalf("a field of type %s: say how to set it", f.Type())
	}
}

func TestEveryFieldOfAMessageReachesTheMesh(t *testing.T) {
	here := map[string]string{"Ephemeral": "says what to do when the connection breaks"}
	r := newFakeRouter(t)
	var got *pushmeshv1.PublishRequest
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		got = it.GetMessage()
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	bare := Message{Topic: "room/a"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Message]()) {
		if f.Name == "Topic" || here[f.Name] != "" {
			continue
		}
		m := bare
		some(t, reflect.ValueOf(&m).Elem().FieldByIndex(f.Index))
		if _, err := p.Publish(t.Context(), m); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		r.mu.Lock()
		if proto.Equal(got, request(bare)) {
			t.Errorf("a Producer leaves %s out", f.Name)
		}
		r.mu.Unlock()
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ClientMessage]()) {
		if f.Name == "Topic" || here[f.Name] != "" {
			continue
		}
		m := ClientMessage{Topic: bare.Topic}
		some(t, reflect.ValueOf(&m).Elem().FieldByIndex(f.Index))
		done := publishing1(s, m)
		out := c.publish()
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: out.GetId(), Seq: 1})
		if p := <-done; p.err != nil || proto.Equal(out, &wirev1.Publish{Id: out.GetId(), Topic: bare.Topic}) {
			t.Errorf("a Subscriber leaves %s out: %v, %v", f.Name, out, p.err)
		}
	}
}

// An Ephemeral message is not published again, whatever its key.
func TestASubscribersEphemeralMessageIsNotRepeated(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	done := publishing1(s, ClientMessage{Topic: "talk", DedupeKey: "k", Ephemeral: true})
	c.publish()
	c.close()
	if p := <-done; p.err == nil {
		t.Fatal(p)
	}
}

func TestEveryFieldOfADeliveryIsFilled(t *testing.T) {
	here := map[protoreflect.Name]string{"subs": "says whose it is", "mesh": "is cut off by edges"}
	fields := (&wirev1.Message{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if here[f.Name()] != "" {
			continue
		}
		m := (&wirev1.Message{}).ProtoReflect()
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Name() == "id":
			m.Set(f, protoreflect.ValueOfBytes([]byte("one of 16 bytes.")))
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte("x")))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case f.Kind() == protoreflect.DoubleKind:
			m.Set(f, protoreflect.ValueOfFloat64(2))
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(2))
		default:
			m.Set(f, protoreflect.ValueOfUint64(2))
		}
		body, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var d Delivery
		if err := d.decode(body, func(b []byte) string { return string(b) }); err != nil || reflect.DeepEqual(d, Delivery{}) {
			t.Errorf("a Delivery has no %s: %v", f.Name(), err)
		}
	}
}

func TestEveryFieldOfASubscriberConfigIsUsed(t *testing.T) {
	here := map[string]string{ // what an edge isn't told
		"Addrs": "where to", "AckDelay": "waits here", "MinBackoff": "waits here", "MaxBackoff": "waits here", "DialTimeout": "waits here",
		"TLS": "TestTLS", "WebSocket": "TestTheSDKByWebSocket of e2e", "Dial": "TestThroughARouter", "Inline": "which goroutine", "OnGap": "a callback", "Logger": "TestWhatIsLogged", "OnConnect": "a callback", "OnDisconnect": "a callback", "OnConnectFailed": "a callback", "lookup": "for tests",
	}
	here["Token"] = "below: it is a function"
	hello := func(change func(*SubscriberConfig)) *wirev1.Hello {
		e := newFakeEdge(t)
		cfg := SubscriberConfig{Addrs: []string{e.addr()}, MinBackoff: time.Millisecond, DialTimeout: patience}
		change(&cfg)
		s, err := NewSubscriber(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(in(t, 10*time.Second)) }()
		c := <-e.conns
		defer c.close()
		m := &wirev1.Hello{}
		c.expect(wirev1.FrameType_FRAME_TYPE_HELLO, m)
		return m
	}
	bare := hello(func(*SubscriberConfig) {})
	for _, f := range reflect.VisibleFields(reflect.TypeFor[SubscriberConfig]()) {
		if here[f.Name] != "" {
			continue
		}
		if f.Name == "Session" {
			continue // below: it needs a ClientID
		}
		if m := hello(func(cfg *SubscriberConfig) { some(t, reflect.ValueOf(cfg).Elem().FieldByIndex(f.Index)) }); proto.Equal(m, bare) {
			t.Errorf("an edge isn't told %s", f.Name)
		}
	}
	if m := hello(func(cfg *SubscriberConfig) { cfg.Token = func(context.Context) (string, error) { return "t", nil } }); m.GetToken() != "t" {
		t.Error(m)
	}
	if m := hello(func(cfg *SubscriberConfig) { cfg.ClientID, cfg.Session = "c", "s" }); m.GetSession() != "s" {
		t.Error(m)
	}
	if m := hello(func(cfg *SubscriberConfig) { cfg.SessionTTL, cfg.Heartbeat = 1, 1 }); m.GetSessionTtlS() != 1 || m.GetHeartbeatMs() != 1 {
		t.Errorf("%v: what is short is not the default", m)
	}
	for _, cfg := range []SubscriberConfig{{SessionTTL: -1}, {Heartbeat: -1}, {ClientID: "\xff"}, {ClientID: "c", Session: "\xff"}, {Agent: "\xff"}} {
		cfg.Addrs = []string{nobody}
		if _, err := NewSubscriber(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// optionsOf are the exported functions of the package that return a type.
func optionsOf(t *testing.T, result string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil || len(f.Type.Results.List) != 1 {
				continue
			}
			if id, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && id.Name == result {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestEveryOptionReachesTheMesh(t *testing.T) {
	subscribe := map[string]Option{
		"WithAck": WithAck(), "FromEarliest": FromEarliest(), "FromLast": FromLast(3), "FromSeq": FromSeq(2, 3), "FromSession": FromSession(),
		"FromPositions": FromPositions(Position{"room/a", 1, 2}), "WithGroup": WithGroup("g"), "WithGroupKey": WithGroupKey(KeyTopic), "WithWhere": WithWhere("true"),
		"WithRankTopK": WithRankTopK(3), "WithWindow": WithWindow(3), "WithOverflow": WithOverflow(OverflowConflate), "WithoutEcho": WithoutEcho(), "WithoutLast": WithoutLast(),
		"WithManualAck": WithManualAck(),
	}
	local := map[string]bool{"WithConcurrency": true} // nothing for an edge
	if all, have := slices.DeleteFunc(optionsOf(t, "Option"), func(name string) bool { return local[name] }), slices.Sorted(maps.Keys(subscribe)); !slices.Equal(all, have) {
		t.Errorf("there are %v, and looked at %v", all, have)
	}
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, ClientID: "c", Session: "s"})
	c := e.welcome()
	for name, o := range subscribe {
		opts := []Option{o}
		switch name {
		case "WithGroupKey":
			opts = append(opts, WithGroup("g"))
		case "WithWindow":
			opts = append(opts, WithAck())
		}
		start(t, s, "room/a", func(context.Context, *Delivery) error { return nil }, opts...)
		m := c.subscribe()
		bare := &wirev1.Subscribe{Id: m.GetId(), Filter: "room/a"}
		switch name {
		case "WithGroupKey":
			bare.Group = "g"
		case "WithWindow":
			bare.Ack = true
		}
		if proto.Equal(m, bare) {
			t.Errorf("an edge isn't told %s", name)
		}
	}
}

// With a plain and a filtered subscription of one topic each ACK and NACK names the one that it is
// for: without a name it would settle both.
func TestACKsNameTheirSubscription(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	handle := func(_ context.Context, d *Delivery) error {
		if d.Attempt == 0 && d.Seq > 10 {
			return NackAfter(time.Second, context.Canceled)
		}
		return nil
	}
	c := e.welcome()
	var ids []uint32
	for _, opts := range [][]Option{{WithAck()}, {WithAck(), WithWhere("true")}} {
		start(t, s, "room/a", handle, opts...)
		ids = append(ids, c.subscribed(7, 0, true).GetId())
	}
	acked := func(seq uint64, sub uint32) {
		t.Helper()
		var a wirev1.Ack
		c.expect(wirev1.FrameType_FRAME_TYPE_ACK, &a)
		if e := a.GetEntries(); len(e) != 1 || e[0].GetSeq() != seq || e[0].GetSub() != sub {
			t.Fatalf("%v, want %d of subscription %d", e, seq, sub)
		}
	}
	nacked := func(seq uint64, sub uint32) {
		t.Helper()
		var n wirev1.Nack
		c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n)
		if n.GetSeq() != seq || n.GetSub() != sub {
			t.Fatalf("%v, want %d of subscription %d", &n, seq, sub)
		}
	}
	c.message("room/a", 1, 0)
	acked(1, ids[0])
	c.message("room/a", 1, 0, ids[1])
	acked(1, ids[1])
	c.message("room/a", 11, 0)
	nacked(11, ids[0])
	c.message("room/a", 11, 0, ids[1])
	nacked(11, ids[1])
}
