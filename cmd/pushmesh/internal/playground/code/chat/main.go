// A chat: who is there, the last 20 messages, and all that
// follow.
package main

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() { fmt.Println(chat(context.Background())) }

func chat(ctx context.Context) error {
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs:    []string{"127.0.0.1:7400"},
		ClientID: "gopher",
	})
	if err != nil {
		return err
	}
	_, err = presence.Watch(ctx, s, "play/chat",
		func(c presence.Change) {
			fmt.Println(c.Count, "here")
		})
	if err != nil {
		return err
	}
	// A message is ACKed when its handler returns nil; after a
	// break the rest comes, in order.
	_, err = s.Subscribe(ctx, "play/chat",
		func(_ context.Context, d *pushmesh.Delivery) error {
			fmt.Printf("%s: %s\n", d.From, d.Payload)
			return nil
		}, pushmesh.WithAck(), pushmesh.FromLast(20))
	if err != nil {
		return err
	}
	// It is answered once it is on disk.
	_, err = s.Publish(ctx, pushmesh.ClientMessage{
		Topic:   "play/chat",
		Payload: []byte("hello from Go"),
	})
	if err != nil {
		return err
	}
	<-s.Done()
	return s.Err()
}
