// Command producer publishes three messages, in order and exactly once.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

func main() {
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{"127.0.0.1:7401"}})
	if err == nil {
		err = errors.Join(greet(p), p.Close(context.Background()))
	}
	fmt.Println("ended:", err)
}

func greet(p *pushmesh.Producer) error {
	for _, text := range []string{"hello", "are you there?", "bye"} {
		r, err := p.Publish(context.Background(), pushmesh.Message{Topic: "room/42/chat", Payload: []byte(text)})
		if err != nil {
			return err
		}
		fmt.Println("on disk as number", r.Seq)
	}
	return nil
}
