// Package pushmesh is the Go client of the pushmesh message mesh.
//
// A [Subscriber] holds a TCP connection to an edge, makes it again whenever it breaks, and goes on
// behind the last message its handlers have dealt with. This is a whole program:
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"fmt"
//
//		"github.com/pushmesh/pushmesh/client/pushmesh"
//	)
//
//	func main() {
//		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:7400"}, ClientID: "ann"})
//		if err == nil {
//			err = follow(sub)
//		}
//		fmt.Println("ended:", err)
//	}
//
//	func follow(sub *pushmesh.Subscriber) error {
//		_, err := sub.Subscribe(context.Background(), "room/42/#", func(_ context.Context, d *pushmesh.Delivery) error {
//			fmt.Println(d.Topic, d.Seq, string(d.Payload))
//			return nil // ACKs it; an error has it come again
//		}, pushmesh.WithAck())
//		if err != nil {
//			return errors.Join(err, sub.Close(context.Background()))
//		}
//		<-sub.Done()
//		return sub.Err()
//	}
//
// A [Producer] publishes over gRPC through a router: pipelined, in order for each topic, and
// exactly once to durable topics.
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"fmt"
//
//		"github.com/pushmesh/pushmesh/client/pushmesh"
//	)
//
//	func main() {
//		p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{"127.0.0.1:7401"}})
//		if err == nil {
//			err = errors.Join(greet(p), p.Close(context.Background()))
//		}
//		fmt.Println("ended:", err)
//	}
//
//	func greet(p *pushmesh.Producer) error {
//		for _, text := range []string{"hello", "are you there?", "bye"} {
//			r, err := p.Publish(context.Background(), pushmesh.Message{Topic: "room/42/chat", Payload: []byte(text)})
//			if err != nil {
//				return err
//			}
//			fmt.Println("on disk as number", r.Seq)
//		}
//		return nil
//	}
//
// What else goes over a Subscriber's connection are packages beside this one: claim, for resources
// that one holds while others wait in line, and presence, for who is in a topic. Package admin asks
// routers about namespaces, logs, sessions and more.
//
// With [NewBackend] a Subscriber's connection is a gRPC stream to a router, as backends want it:
// they need reach no edge, may subscribe to the mesh's own topics, such as $events/#, and have
// sessions of their own; publishing is a Producer's.
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"fmt"
//
//		"github.com/pushmesh/pushmesh/client/pushmesh"
//	)
//
//	func main() {
//		sub, err := pushmesh.NewBackend(pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:7401"}})
//		if err == nil {
//			err = work(sub)
//		}
//		fmt.Println("ended:", err)
//	}
//
//	func work(sub *pushmesh.Subscriber) error {
//		_, err := sub.Subscribe(context.Background(), "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
//			fmt.Println("doing", string(d.Payload))
//			return nil // ACKs it; an error has it come again, perhaps to another backend
//		}, pushmesh.WithAck(), pushmesh.WithGroup("workers"))
//		if err != nil {
//			return errors.Join(err, sub.Close(context.Background()))
//		}
//		<-sub.Done()
//		return sub.Err()
//	}
package pushmesh
