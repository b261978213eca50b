package compute

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
)

// spinner is loops that do nothing but spin, a thread each: what a machine makes of any work beside
// an edge, under the same priority. What a compute node costs beyond that is its own. "on" begins,
// "off" ends.
func spinner(_ context.Context, arg []byte, orders <-chan string, say func(any) error) error {
	var loops int
	if err := json.Unmarshal(arg, &loops); err != nil {
		return err
	}
	var on atomic.Bool
	var under sync.WaitGroup
	defer under.Wait()
	defer on.Store(false)
	err := say("ready")
	for order := range orders {
		if on.Store(order == "on"); on.Load() {
			for range loops {
				under.Go(func() {
					for on.Load() { // that is all
					}
				})
			}
		} else {
			under.Wait()
		}
		if err = say("ok"); err != nil {
			break
		}
	}
	return err
}
