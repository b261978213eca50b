package pushmesh_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/client/admin"
	"github.com/pushmesh/pushmesh/client/claim"
	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// A subscriber ACKs what its handler has dealt with, and connects again by itself.
func ExampleSubscriber() {
	edge := startEdge("room/42/chat", "hello", "bye")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	handled := make(chan bool)
	_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println(d.Topic, d.Seq, string(d.Payload))
		handled <- d.Seq == 2
		return nil // ACKs it; an error has it come again
	}, pushmesh.WithAck(), pushmesh.FromEarliest())
	if err != nil {
		fmt.Println(err)
		return
	}
	for last := false; !last; last = <-handled {
	}
	fmt.Println("closed:", sub.Close(context.Background()))
	// Output:
	// room/42/chat 1 hello
	// room/42/chat 2 bye
	// closed: <nil>
}

// Without a session a program keeps its positions itself, with what it did about the messages, and
// goes on behind them at any edge.
func ExampleFromPositions() {
	before, after := startEdge("room/42/chat", "one", "two"), startEdge("room/42/chat", "one", "two", "three")
	defer before.stop()
	defer after.stop()

	var saved pushmesh.Position // in a program: a row of its database
	// follow handles messages up to the one with a seq.
	follow := func(addr string, through uint64, start pushmesh.Option) error {
		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{addr}, ClientID: "ann"})
		if err != nil {
			return err
		}
		reached := make(chan struct{})
		_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
			fmt.Println(d.Seq, string(d.Payload))
			saved = pushmesh.Position{Topic: d.Topic, Epoch: d.Epoch, Seq: d.Seq}
			if d.Seq == through {
				close(reached)
			}
			return nil
		}, pushmesh.WithAck(), start)
		if err == nil {
			<-reached
		}
		return errors.Join(err, sub.Close(context.Background()))
	}
	err := follow(before.addr, 2, pushmesh.FromEarliest())
	fmt.Println("stopped behind", saved.Seq, err)
	err = follow(after.addr, 3, pushmesh.FromPositions(saved))
	fmt.Println("stopped behind", saved.Seq, err)
	// Output:
	// 1 one
	// 2 two
	// stopped behind 2 <nil>
	// 3 three
	// stopped behind 3 <nil>
}

// A handler that can't deal with a message now asks for it again, some time later.
func ExampleNackAfter() {
	edge := startEdge("room/42/jobs", "resize a picture")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "worker"})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	_, err = sub.Subscribe(context.Background(), "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println("attempt", d.Attempt)
		if d.Attempt == 0 {
			return pushmesh.NackAfter(time.Second, errors.New("the printer is busy"))
		}
		close(done)
		return nil
	}, pushmesh.WithAck(), pushmesh.FromEarliest(), pushmesh.WithGroup("workers"))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-done
	fmt.Println("closed:", sub.Close(context.Background()))
	// Output:
	// attempt 0
	// attempt 1
	// closed: <nil>
}

// A gap is what can't be had any more: here the client was away for longer than messages are kept.
func ExampleGap() {
	edge := startEdge("room/42/chat", "one", "two", "three", "four")
	edge.oldest = 4
	defer edge.stop()

	told := make(chan struct{})
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{edge.addr}, ClientID: "ann",
		OnGap: func(g pushmesh.Gap) {
			fmt.Printf("%d messages of %s are gone (%v): load the room anew\n", g.Missed, g.Topic, g.Code)
			close(told)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handled := make(chan struct{})
	_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
		<-told
		fmt.Println("going on with", d.Seq)
		close(handled)
		return nil
	}, pushmesh.WithAck(), pushmesh.FromSeq(epoch, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-handled
	fmt.Println("closed:", sub.Close(context.Background()))
	// Output:
	// 2 messages of room/42/chat are gone (RETENTION): load the room anew
	// going on with 4
	// closed: <nil>
}

// Messages in a loop: going on ACKs what the loop had, Nack asks for it again.
func ExampleSubscription_Messages() {
	edge := startEdge("room/42/chat", "hello", "bye")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	sub, err := s.Pull(ctx, "room/42/chat", pushmesh.WithAck(), pushmesh.FromEarliest())
	if err != nil {
		fmt.Println(err)
		return
	}
	for d, err := range sub.Messages(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Seq, string(d.Payload))
		if d.Seq == 2 {
			break
		}
	}
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// 1 hello
	// 2 bye
	// closed: <nil>
}

// A message that is ACKed later, by another goroutine than its handler's.
func ExampleWithManualAck() {
	edge := startEdge("room/42/jobs", "resize a picture")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "worker"})
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := make(chan *pushmesh.Delivery, 10)
	_, err = s.Subscribe(ctx, "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
		jobs <- d
		return nil // says nothing
	}, pushmesh.WithManualAck(), pushmesh.FromEarliest())
	if err != nil {
		fmt.Println(err)
		return
	}
	d := <-jobs
	fmt.Println("done:", string(d.Payload))
	fmt.Println("ACKed:", d.Ack())
	fmt.Println("twice:", d.Ack())
	fmt.Println("closed:", s.Drain(ctx))
	// Output:
	// done: resize a picture
	// ACKed: <nil>
	// twice: pushmesh: the message is settled already
	// closed: <nil>
}

// Handlers of different topics run at once, those of one topic in order.
func ExampleWithConcurrency() {
	edge := startEdge("room/42/jobs", "one", "two", "three")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "worker"})
	if err != nil {
		fmt.Println(err)
		return
	}
	sub, err := s.Subscribe(ctx, "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println(string(d.Payload))
		return nil
	}, pushmesh.WithAck(), pushmesh.WithConcurrency(8), pushmesh.FromEarliest())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sub.CaughtUp(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// one
	// two
	// three
	// closed: <nil>
}

// What was before, for a screen that begins with the last messages; the subscription goes on.
func ExampleSubscriber_History() {
	edge := startEdge("room/42/chat", "one", "two", "three")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann", Session: "phone"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for d, err := range s.History(ctx, "room/42/chat", 2) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("before:", string(d.Payload))
	}
	sub, err := s.Subscribe(ctx, "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
		return nil // what the session has not ACKed, and what is new
	}, pushmesh.FromSession())
	if err != nil {
		fmt.Println(err)
		return
	}
	head, _ := sub.Head("room/42/chat")
	fmt.Println("above", head.Seq, "it is new")
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// before: two
	// before: three
	// above 3 it is new
	// closed: <nil>
}

// A claim is held until it is released or lost; what it protects compares tokens.
func Example_claim() {
	edge := startEdge("")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	printer, err := claim.Acquire(context.Background(), sub, "printer/3")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("printing with token", printer.Token(), "- held:", printer.Held())
	fmt.Println("released:", printer.Release(context.Background()))
	fmt.Println("closed:", sub.Close(context.Background()))
	// Output:
	// printing with token 7 - held: true
	// released: <nil>
	// closed: <nil>
}

// Who is in a topic, and what this client says of itself there.
func Example_whoIsThere() {
	edge := startEdge("")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Connected(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := presence.SetState(ctx, s, "room/42/chat", []byte("typing")); err != nil {
		fmt.Println(err)
		return
	}
	w, err := presence.Watch(ctx, s, "room/42/chat", func(presence.Change) {
		// who has come, and who has gone
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range w.Members() {
		fmt.Println(m.User, string(m.State))
	}
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// ann typing
	// bob away
	// closed: <nil>
}

// What a client publishes goes over its own connection; with a DedupeKey it is published once,
// though the connection breaks before the answer.
func ExampleSubscriber_Publish() {
	edge := startEdge("")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := s.Publish(ctx, pushmesh.ClientMessage{Topic: "room/42/chat", Payload: []byte("hello"), DedupeKey: "ann-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("on disk as number", r.Seq)
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// on disk as number 1
	// closed: <nil>
}

// A token that ends soon gives way to a new one, and the connection goes on.
func ExampleSubscriber_RefreshToken() {
	edge := startEdge("")
	defer edge.stop()

	ctx := context.Background()
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{edge.addr},
		Token: func(context.Context) (string, error) { return "the first", nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Connected(ctx); err != nil {
		fmt.Println(err)
		return
	}
	expires, err := s.RefreshToken(ctx, "the second")
	if err != nil {
		fmt.Println(err) // the connection goes on with the first
		return
	}
	fmt.Println("good until", expires.UTC().Format(time.DateTime))
	fmt.Println("closed:", s.Close(ctx))
	// Output:
	// good until 2026-11-18 11:06:40
	// closed: <nil>
}

// What can't work is told before anything is sent, with the name of the field or option.
func ExampleConfigError() {
	_, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{"https://edge.example.com"}})
	var bad *pushmesh.ConfigError
	if errors.As(err, &bad) {
		fmt.Println(bad.Field)
	}
	fmt.Println(errors.Is(err, pushmesh.ErrInvalidArgument))
	// Output:
	// SubscriberConfig.Addrs
	// true
}

// A result with a Seq is on disk; without one the message was ephemeral, or waits for its
// DeliverAt.
func ExampleProducer_Publish() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"hello", "bye"} {
		r, err := p.Publish(context.Background(), pushmesh.Message{Topic: "room/42/chat", Payload: []byte(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(text, "is on disk as number", r.Seq)
	}
	fmt.Println("closed:", p.Close(context.Background()))
	// Output:
	// hello is on disk as number 1
	// bye is on disk as number 2
	// closed: <nil>
}

// Messages are published without waiting for each other's answers; Flush waits for all.
func ExampleProducer_PublishAsync() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex
	stored := 0
	for i := range 100 {
		err := p.PublishAsync(context.Background(), pushmesh.Message{Topic: "prices/oil", Payload: []byte{byte(i)}}, func(r pushmesh.Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.Seq > 0 {
				stored++
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	mu.Lock()
	fmt.Println(stored, "are on disk")
	mu.Unlock()
	fmt.Println("closed:", p.Close(context.Background()))
	// Output:
	// 100 are on disk
	// closed: <nil>
}

// A message whose answer is waited for later.
func ExampleProducer_PublishFuture() {
	router := startRouter()
	defer router.stop()

	ctx := context.Background()
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var answers []*pushmesh.Future
	for _, text := range []string{"hello", "bye"} {
		f, err := p.PublishFuture(ctx, pushmesh.Message{Topic: "room/42/chat", Payload: []byte(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		answers = append(answers, f)
	}
	for _, f := range answers {
		r, err := f.Wait(ctx)
		fmt.Println(r.Seq, err)
	}
	fmt.Println("closed:", p.Close(ctx))
	// Output:
	// 1 <nil>
	// 2 <nil>
	// closed: <nil>
}

// An error says whether trying again can help, and whether it may have happened nevertheless.
func ExampleError() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = p.Publish(context.Background(), pushmesh.Message{Topic: "$events/connect", Payload: []byte("mine")})
	var refused *pushmesh.Error
	switch {
	case err == nil:
		fmt.Println("published")
	case !errors.As(err, &refused):
		fmt.Println("the context is over, or the producer is closed:", err)
	case refused.Unknown:
		fmt.Println("it may have been published")
	case refused.Retryable():
		fmt.Println("try again after", refused.RetryAfter)
	default:
		fmt.Println("never:", refused.Code)
	}
	fmt.Println("closed:", p.Close(context.Background()))
	// Output:
	// never: FORBIDDEN
	// closed: <nil>
}

// Calls without the SDK: a status says by its RetryInfo whether trying again can help, and when. A
// call that got no answer has none, and may have been done: a DedupeKey has it done once.
func Example_retry() {
	router := startRouter()
	defer router.stop()
	router.refuse = 1 // the first call, with a time to come back

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	publish := func(ctx context.Context) error {
		r, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{
			Topic: "user/42/orders", Payload: []byte("paid"), DedupeKey: "order-4711-paid",
		})
		if err == nil {
			fmt.Println("on disk as number", r.GetSeq())
		}
		return err
	}
	fmt.Println("ended:", retry(context.Background(), publish))
	// Output:
	// OVERLOADED: again in 1ms
	// on disk as number 1
	// ended: <nil>
}

// retry repeats a call as long as that can help, and ctx lasts.
func retry(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		st, ok := status.FromError(err)
		if err == nil || !ok {
			return err
		}
		again, wait := st.Code() == codes.Unavailable, 100*time.Millisecond // no router answered
		for _, d := range st.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				again = false // the mesh itself refused: it says below whether to come back
				fmt.Print(d.GetReason(), ": ")
			case *errdetails.RetryInfo:
				again, wait = true, d.GetRetryDelay().AsDuration()
			}
		}
		if !again {
			return err
		}
		fmt.Println("again in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// What a topic's log holds: its head, and its last messages.
func Example_history() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	mesh := admin.New(conn)
	heads, err := mesh.Heads(context.Background(), "room/42/chat")
	if err != nil {
		fmt.Println(err)
		return
	}
	head := heads[0]
	fmt.Println("head", head.Seq, "oldest", head.Oldest)
	last := uint64(2) // this many
	behind := pushmesh.Position{Topic: head.Topic, Epoch: head.Epoch, Seq: head.Seq - min(head.Seq, last)}
	for m, err := range mesh.Read(context.Background(), behind, last) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(m.Seq, string(m.Payload))
	}
	// Output:
	// head 3 oldest 1
	// 2 two
	// 3 three
}

// Who is subscribed to a topic: connections, with their edges. Its namespace has presence.
func Example_presence() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	for m, err := range admin.New(conn).Members(context.Background(), "room/42/chat") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(m.ClientID, "on", m.Edge)
	}
	// Output:
	// ann on edge-1
	// bob on edge-2
}

// How topics of a prefix behave. Put replaces the whole policy: read it before you change a part.
func Example_namespaces() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	mesh := admin.New(conn)
	room, err := mesh.Namespace(context.Background(), "room")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("durable", room.Policy.Durable, "presence", room.Policy.Presence)
	room.Policy.Presence, room.Policy.Retention = true, 7*24*time.Hour
	lagging, err := mesh.PutNamespace(context.Background(), room.Prefix, room.Policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("processes that may not know it yet:", len(lagging))
	// Output:
	// durable true presence false
	// processes that may not know it yet: 0
}

// How far a session is in each topic.
func Example_sessions() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	// Without authentication the user of a client is "client:" and its id.
	session, err := admin.New(conn).Session(context.Background(), "client:ann", "inbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range session.Cursors {
		fmt.Println(c.Topic, "through", c.Floor, "of", c.Head, "- not ACKed:", c.Lag)
	}
	// Output:
	// room/42/chat through 1 of 3 - not ACKed: 2
}

// What sessions gave up: look at it, then publish it again, or discard it.
func Example_deadLetters() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	mesh := admin.New(conn)
	var ids []uint64
	for l, err := range mesh.DeadLetters(context.Background(), "room/#") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(l.Topic, l.Seq, l.Reason, "after", l.Attempts, "attempts of", l.User)
		ids = append(ids, l.ID)
	}
	replayed, err := mesh.ReplayDeadLetters(context.Background(), admin.Which{IDs: ids})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("published again:", replayed.Replayed)
	// Output:
	// room/42/chat 2 ATTEMPTS_EXHAUSTED after 16 attempts of client:ann
	// published again: 1
}
