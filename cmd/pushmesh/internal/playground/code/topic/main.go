// Any topics, many at a time: + is one level, # is all that
// follow.
package main

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() { fmt.Println(follow(context.Background())) }

func follow(ctx context.Context) error {
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs:    []string{"127.0.0.1:7400"},
		ClientID: "gilda",
		// What can't be had any more is told, with the reason.
		OnGap: func(g pushmesh.Gap) {
			fmt.Println(g.Missed, "missed:", g.Code)
		},
	})
	if err != nil {
		return err
	}
	_, err = s.Subscribe(ctx, "play/news/#",
		func(_ context.Context, d *pushmesh.Delivery) error {
			fmt.Printf("%s %d %v %s\n",
				d.Topic, d.Seq, d.Age(), d.Payload)
			return nil
		})
	if err != nil {
		return err
	}
	// Clients publish where the policy of a namespace lets
	// them.
	r, err := s.Publish(ctx, pushmesh.ClientMessage{
		Topic:   "play/news/today",
		Payload: []byte("hello from Go"),
	})
	if err != nil {
		return err
	}
	fmt.Println("on disk as seq", r.Seq)
	<-s.Done()
	return s.Err()
}
