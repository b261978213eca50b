// Command backend takes its share of a topic's jobs, over gRPC and through a router.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() {
	sub, err := pushmesh.NewBackend(pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:7401"}})
	if err == nil {
		err = work(sub)
	}
	fmt.Println("ended:", err)
}

func work(sub *pushmesh.Subscriber) error {
	_, err := sub.Subscribe(context.Background(), "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println("doing", string(d.Payload))
		return nil // ACKs it; an error has it come again, perhaps to another backend
	}, pushmesh.WithAck(), pushmesh.WithGroup("workers"))
	if err != nil {
		return errors.Join(err, sub.Close(context.Background()))
	}
	<-sub.Done()
	return sub.Err()
}
