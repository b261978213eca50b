// The best five prices of each second, for somebody who
// likes technology.
package main

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() { fmt.Println(prices(context.Background())) }

func prices(ctx context.Context) error {
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{"127.0.0.1:7400"},
		// What the rank policy of play/prices multiplies
		// with the features of each message.
		Profile: map[string]float64{"tech": 1, "energy": 0.1},
	})
	if err != nil {
		return err
	}
	_, err = s.Subscribe(ctx, "play/prices",
		func(_ context.Context, d *pushmesh.Delivery) error {
			fmt.Printf("%.2f %s\n", d.Score, d.Payload)
			return nil
		}, pushmesh.WithRankTopK(5))
	if err != nil {
		return err
	}
	<-s.Done()
	return s.Err()
}
