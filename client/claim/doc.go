// Package claim lets clients hold resources: one holds, others wait in line. The policy of the
// resource's namespace must let clients claim.
//
// A [Place] is in the line for a resource, or holds it. It is renewed, and taken up again after a
// reconnect, until it is released or lost.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"time"
//
//		"github.com/pushmesh/pushmesh/client/claim"
//		"github.com/pushmesh/pushmesh/client/pushmesh"
//	)
//
//	func main() {
//		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:7400"}, ClientID: "ann"})
//		if err == nil {
//			err = host(context.Background(), sub)
//		}
//		fmt.Println("ended:", err)
//	}
//
//	func host(ctx context.Context, sub *pushmesh.Subscriber) error {
//		seat, err := claim.Acquire(ctx, sub, "room/42/host")
//		if err != nil {
//			return err
//		}
//		select {
//		case <-time.After(time.Minute): // the work, whose writes carry seat.Token()
//		case <-seat.Lost():
//		}
//		return seat.Release(ctx)
//	}
package claim
