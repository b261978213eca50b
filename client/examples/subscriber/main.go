// Command subscriber prints what is published to a room, and comes back where it was after anything
// breaks.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() {
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:7400"}, ClientID: "ann"})
	if err == nil {
		err = follow(sub)
	}
	fmt.Println("ended:", err)
}

func follow(sub *pushmesh.Subscriber) error {
	_, err := sub.Subscribe(context.Background(), "room/42/#", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println(d.Topic, d.Seq, string(d.Payload))
		return nil // ACKs it; an error has it come again
	}, pushmesh.WithAck())
	if err != nil {
		return errors.Join(err, sub.Close(context.Background()))
	}
	<-sub.Done()
	return sub.Err()
}
