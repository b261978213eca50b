package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// party is two rooms of three and two users who say so much each.
func party(says int) *Script {
	var lines strings.Builder
	for i := range says {
		for _, who := range []string{"a/ann", "b/cyd", "a/bob", "b/dan", "a/eve"} {
			room, user, _ := strings.Cut(who, "/")
			fmt.Fprintf(&lines, `{"room":%q,"at":"10:%02d","kind":"say","user":%q,"text":"%d"}`+"\n", room, i%60, user, i)
		}
	}
	s, err := Read(strings.NewReader(lines.String()))
	if err != nil {
		panic(err)
	}
	return s
}

func replayed(t *testing.T, f *fakeMesh, s *Script, more func(*Options)) (Result, string, error) {
	t.Helper()
	var out bytes.Buffer
	o := Options{
		Edges: []string{f.edge}, Routers: []string{f.heads}, Out: &out,
		dial: func(context.Context, []string) (producer, error) { return f, nil },
	}
	if more != nil {
		more(&o)
	}
	r, err := Run(t.Context(), s, o)
	return r, out.String(), err
}

func TestReplayDeliversEverything(t *testing.T) {
	f := newFakeMesh(t)
	s := party(40)
	r, out, err := replayed(t, f, s, nil)
	if err != nil || !r.OK() || r.Delivered != 3*120+2*80 || r.Acked < r.Delivered {
		t.Fatalf("%v %+v\n%s", err, r, out)
	}
	if !regexp.MustCompile(`^expected=520 delivered=520 missing=0 duplicate=0 disorder=0 seconds=\d+\.\d$`).MatchString(r.Line()) {
		t.Fatalf("last line %q", r.Line())
	}
	for !f.allAcked() { // the last ACKs may still be on their way
		select {
		case <-f.acked:
		case <-time.After(time.Minute):
			t.Fatal("not everything was ACKed")
		}
	}
}

func TestReplayInWaves(t *testing.T) {
	f := newFakeMesh(t)
	r, out, err := replayed(t, f, party(10), func(o *Options) { o.MaxConnections, o.Ahead = 3, 1 })
	if err != nil || !r.OK() || !strings.Contains(out, "2 wave(s)") {
		t.Fatalf("%v %+v\n%s", err, r, out)
	}
}

// A connection that is cut resumes after the last message it had; a redelivery is not seen twice.
func TestReplayRidesThroughCuts(t *testing.T) {
	f := newFakeMesh(t)
	f.fault = func(conn int, seq uint64) fault {
		switch {
		case conn <= 5 && seq == 7:
			return cut
		case seq%5 == 0:
			return twice
		}
		return deliver
	}
	r, out, err := replayed(t, f, party(20), nil)
	if err != nil || !r.OK() || r.Reconnects < 5 || r.Absorbed == 0 {
		t.Fatalf("%v %+v\n%s", err, r, out)
	}
}

func TestReplayFindsALostMessage(t *testing.T) {
	for stall := 2 * time.Second; ; stall *= 4 {
		// a machine that stands still for so long is given longer
		f := newFakeMesh(t)
		f.fault = func(conn int, seq uint64) fault {
			if conn == 2 && seq == 11 {
				return lose
			}
			return deliver
		}
		r, _, err := replayed(t, f, party(20), func(o *Options) { o.Stall = stall })
		if !errors.Is(err, ErrStalled) || r.OK() || r.Missing == 0 || r.Duplicate != 0 || r.Disorder != 0 {
			t.Fatalf("%v %+v", err, r)
		}
		if r.Missing == 1 {
			return
		}
		if stall > 30*time.Second {
			t.Fatalf("%d are missing in %s, one was lost: %+v", r.Missing, stall, r)
		}
	}
}

// twiceProducer publishes one message twice, as a producer would that resends without a key.
type twiceProducer struct {
	*fakeMesh
	n int
}

func (p *twiceProducer) publish(ctx context.Context, topic string, payload []byte, done func(error)) error {
	if p.n++; p.n == 13 {
		_ = p.fakeMesh.publish(ctx, topic, payload, func(error) {})
	}
	return p.fakeMesh.publish(ctx, topic, payload, done)
}

func TestReplayFindsAMessagePublishedTwice(t *testing.T) {
	f := newFakeMesh(t)
	s := party(20)
	r, out, err := replayed(t, f, s, func(o *Options) {
		o.dial = func(context.Context, []string) (producer, error) { return &twiceProducer{fakeMesh: f}, nil }
	})
	if err != nil || r.OK() || r.Missing != 0 || r.Duplicate != uint64(s.Rooms[s.Says[12].Room].Users) {
		t.Fatalf("%v %+v\n%s", err, r, out)
	}
}

// swapProducer exchanges two messages of a topic.
type swapProducer struct {
	*fakeMesh
	held []byte
	n    int
}

func (p *swapProducer) publish(ctx context.Context, topic string, payload []byte, done func(error)) error {
	if strings.Contains(topic, "-b/") {
		return p.fakeMesh.publish(ctx, topic, payload, done)
	}
	switch p.n++; p.n {
	case 8:
		p.held = payload
		done(nil)
		return nil
	case 9:
		return errors.Join(p.fakeMesh.publish(ctx, topic, payload, done), p.fakeMesh.publish(ctx, topic, p.held, func(error) {}))
	}
	return p.fakeMesh.publish(ctx, topic, payload, done)
}

func TestReplayFindsDisorder(t *testing.T) {
	f := newFakeMesh(t)
	r, _, err := replayed(t, f, party(20), func(o *Options) {
		o.dial = func(context.Context, []string) (producer, error) { return &swapProducer{fakeMesh: f}, nil }
	})
	if err != nil || r.OK() || r.Missing != 0 || r.Disorder != 3 {
		t.Fatalf("%v %+v", err, r)
	}
}

func TestReplayKeepsToItsTime(t *testing.T) {
	f := newFakeMesh(t)
	r, _, err := replayed(t, f, party(20), func(o *Options) { o.Speed, o.Timeout = 1, 300*time.Millisecond })
	if !errors.Is(err, ErrTimeout) || r.Missing == 0 || r.Delivered+r.Missing != r.Expected {
		t.Fatalf("%v %+v", err, r)
	}
}

func TestReplayEndsWithARefusedPublish(t *testing.T) {
	f := newFakeMesh(t)
	refused := errors.New("no")
	r, _, err := replayed(t, f, party(5), func(o *Options) {
		o.dial = func(context.Context, []string) (producer, error) { return refusing{f, refused}, nil }
	})
	if !errors.Is(err, refused) || r.Missing != r.Expected {
		t.Fatalf("%v %+v", err, r)
	}
}

// Subscribers come with a token, and with another one once where its time is over.
func TestReplayWithTokens(t *testing.T) {
	for want, good := range map[wirev1.Code]string{wirev1.Code_CODE_OK: "new", wirev1.Code_CODE_TOKEN_EXPIRED: "none"} {
		f := newFakeMesh(t)
		f.refuse = func(m *wirev1.Hello) *wirev1.Error {
			if m.GetToken() == good {
				return nil
			}
			return &wirev1.Error{Code: wirev1.Code_CODE_TOKEN_EXPIRED, Message: "get a new one"}
		}
		var asked atomic.Int32
		r, _, err := replayed(t, f, party(5), func(o *Options) {
			o.Token = func(context.Context) (string, error) {
				if asked.Add(1) <= 5 {
					return "old", nil
				}
				return "new", nil
			}
		})
		if code.Of(err) != want || r.OK() != (want == wirev1.Code_CODE_OK) {
			t.Errorf("%v: %v, %+v", want, err, r)
		}
	}
}

type refusing struct {
	*fakeMesh
	err error
}

func (r refusing) publish(_ context.Context, _ string, _ []byte, done func(error)) error {
	done(r.err)
	return nil
}
