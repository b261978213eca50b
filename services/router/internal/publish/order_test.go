package publish

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestARefusalStopsItsTopicUntilItIsSentAgain(t *testing.T) {
	var o order
	now := time.Unix(1_000_000, 0)
	id, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	refuse := func(topic string, seq uint64) { o.refused(now, id, &pushmeshv1.PublishRequest{Topic: topic}, seq) }
	passes := func(topic string, seq uint64, want bool) {
		t.Helper()
		err := o.check(now, id, topic, seq)
		if want && err != nil || !want && code.Of(err) != wirev1.Code_CODE_OUT_OF_ORDER {
			t.Errorf("%s %d: %v", topic, seq, err)
		}
	}
	passes("a", 1, true)
	refuse("a", 2)
	passes("a", 3, false)
	passes("a", 4, false)
	passes("b", 7, true)
	passes("a", 0, true) // has no number
	passes("a", 2, true) // again from there
	passes("a", 3, true)

	refuse("a", 4)
	passes("a", 5, false)
	passes("a", 3, true) // again from further back
	passes("a", 4, true)

	refuse("a", 5)
	now = now.Add(stoppedFor + 1)
	passes("a", 6, true)

	refuse("a", 6)
	if err := o.check(now, other, "a", 9); err != nil {
		t.Errorf("of another producer: %v", err)
	}
	passes("a", 7, true) // a stream that went over to another producer and back has begun anew
	for i := range 2 * maxStopped {
		refuse(fmt.Sprint("t", i), 1)
	}
	if len(o.stopped) > maxStopped {
		t.Errorf("%d topics are remembered", len(o.stopped))
	}
}
