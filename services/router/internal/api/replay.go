package api

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
)

const (
	// replaysAtATime of one call are under way.
	replaysAtATime = 64
	// A letter that could not be published, but may be soon, is tried so often.
	replayTries = 5
	// replayPause between tries, where the refusal names none.
	replayPause = 100 * time.Millisecond
)

// replayed is the result of one letter; place is that of its page.
type replayed struct {
	place uint64
	res   *publish.Result
}

// receiver never blocks: it has room for all that are under way.
type receiver chan replayed

func (r receiver) Published(ref uint64, res *publish.Result) { r <- replayed{ref, res} }

// replay publishes letters and says which are published; failures go to out. Letters of one topic
// keep their order only where none has to be tried again.
func (d *DeadLetter) replay(ctx context.Context, page []*meshv1.DeadLetter, out *pushmeshv1.DeadLetterServiceReplayResponse) (done []uint64, err error) {
	results := make(receiver, replaysAtATime)
	fail := func(l *meshv1.DeadLetter, why *code.Error) {
		out.Failed++
		if len(out.Failures) < maxFailures {
			out.Failures = append(out.Failures, &pushmeshv1.DeadLetterFailure{Id: l.GetId(), Code: why.Code, Error: why.Message})
		}
	}
	todo := make([]int, len(page))
	for i := range todo {
		todo[i] = i
	}
	for try := 1; len(todo) > 0; try++ {
		var again []int
		pause := replayPause
		for len(todo) > 0 {
			n, open := min(len(todo), replaysAtATime), 0
			for _, i := range todo[:n] {
				m, err := letterMessage(page[i])
				if err != nil {
					fail(page[i], code.From(err))
					continue
				}
				d.replayer.Replay(page[i], m, uint64(i), results)
				open++
			}
			todo = todo[n:]
			for range open {
				var r replayed
				select {
				case r = <-results:
				case <-ctx.Done():
					return done, ctx.Err()
				}
				err := r.res.Err()
				switch why := code.From(err); {
				case err == nil:
					done = append(done, page[r.place].GetId())
				case code.Retryable(why.Code) && try < replayTries:
					again, pause = append(again, int(r.place)), max(pause, why.RetryAfter)
				default:
					fail(page[r.place], why)
				}
			}
		}
		if todo = again; len(todo) > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return done, ctx.Err()
			}
		}
	}
	return done, nil
}
