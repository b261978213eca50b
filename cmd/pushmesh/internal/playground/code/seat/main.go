// One seat: whoever holds it works, the others wait in line.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/client/claim"
	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() {
	if err := work(context.Background()); err != nil {
		fmt.Println(err)
	}
}

func work(ctx context.Context) error {
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs:    []string{"127.0.0.1:7400"},
		ClientID: "gopher",
	})
	if err != nil {
		return err
	}
	// It waits for its turn, and renews the hold from then on.
	seat, err := claim.Acquire(ctx, s, "play/seat",
		claim.WithTTL(10*time.Second),
		claim.OnPosition(func(position int) {
			fmt.Println("number", position, "in the line")
		}))
	if err != nil {
		return err
	}
	// What checks the token refuses a holder from before.
	fmt.Println("has the seat, with token", seat.Token())
	select {
	case <-time.After(2 * time.Second): // the work
	case <-seat.Lost():
		return seat.Err()
	}
	if err := seat.Release(ctx); err != nil {
		return err
	}
	fmt.Println("gave it up")
	return s.Close(ctx)
}
