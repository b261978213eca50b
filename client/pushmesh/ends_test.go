package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/publishing"
	"github.com/pushmesh/pushmesh/client/internal/renewal"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Which ends of a connection end the subscriber: those that trying again can't help. With a Token,
// that its time is over is no such end.
func TestWhatEndsASubscriber(t *testing.T) {
	token := func(context.Context) (string, error) { return "t", nil }
	for _, x := range []struct {
		code  Code
		token func(context.Context) (string, error)
		ends  bool
	}{
		{CodeForbidden, token, true},
		{CodeUnauthenticated, nil, true},
		{CodeTokenExpired, nil, true},
		{CodeUnauthenticated, token, true},
		{CodeTokenExpired, token, false},
		{CodeUnavailable, nil, false},
		{CodeOK, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Token: x.token})
			c := e.welcome()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code(x.code), Message: "why"})
			pass(time.Second)
			select {
			case <-s.Done():
				if !x.ends || CodeOf(s.Err()) != x.code || !strings.HasSuffix(s.Err().Error(), ": why") {
					t.Errorf("%v ended it with %v", x.code, s.Err())
				}
			default:
				if x.ends {
					t.Errorf("%v does not end it", x.code)
				}
				e.welcome()
			}
		})
	}
}

// A token that can't be had just now is asked for again.
func TestATokenThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, asked := newPipeEdge(t), 0
		newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Token: func(context.Context) (string, error) {
			if asked++; asked < 3 {
				return "", errors.New("not now")
			}
			return "t", nil
		}})
		if _, hello := e.accept(); hello.GetToken() != "t" {
			t.Errorf("Hello has %q", hello.GetToken())
		}
	})
}

// A token whose time is over is asked for again, for each connection that ended so; a Hello that is
// refused so a second time in a row ends the subscriber, and one that is not believed at once.
func TestExpiredTokens(t *testing.T) {
	const expired, bad = CodeTokenExpired, CodeUnauthenticated
	const welcome, away = CodeOK, CodeUnavailable
	for _, x := range []struct {
		answers []Code // to each Hello
		ends    Code   // after the last one; OK: it goes on
	}{
		{[]Code{bad}, bad},
		{[]Code{expired, bad}, bad},
		{[]Code{expired, expired}, expired},
		{[]Code{expired, away, expired}, expired},
		{[]Code{expired, welcome}, welcome},
		{[]Code{expired, welcome, expired, welcome, expired, welcome}, welcome},
		{[]Code{welcome, welcome, expired, welcome}, welcome}, // those welcomed end for their token
		{[]Code{welcome, expired, expired}, expired},
	} {
		for _, addrs := range [][]string{{"edge"}, {"edge", "other"}} {
			synctest.Test(t, func(t *testing.T) {
				e, asked := newPipeEdge(t), 0
				s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: addrs, Token: func(context.Context) (string, error) {
					asked++
					return fmt.Sprint("token ", asked), nil
				}})
				for i, answer := range x.answers {
					c, hello := e.accept()
					if want := fmt.Sprint("token ", i+1); hello.GetToken() != want {
						t.Fatalf("%v: connection %d comes with %q, want %q", x.answers, i, hello.GetToken(), want)
					}
					if answer == welcome {
						c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 30_000})
						if answer = expired; i == len(x.answers)-1 {
							break
						}
					}
					c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code(answer), Message: "why"})
				}
				pass(time.Minute)
				select {
				case <-s.Done():
					if x.ends == welcome || CodeOf(s.Err()) != x.ends {
						t.Errorf("%v ended it with %v", x.answers, s.Err())
					}
				default:
					if x.ends != welcome {
						t.Errorf("%v does not end it", x.answers)
					}
				}
				e.nobodyDials()
			})
		}
	}
}

// A Hello may have 12 KiB. One more byte, of which an edge would say nothing but that it is too
// long, ends the subscriber with what helps.
func TestTheLongestHello(t *testing.T) {
	size := 0
	for _, more := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			token := strings.Repeat("x", 3000)
			if size > 0 {
				token = strings.Repeat("x", 3000+wire.MaxHello-size+more)
			}
			cfg := SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Token: func(context.Context) (string, error) { return token, nil }}
			if size == 0 {
				newTestSubscriber(t, cfg)
				_, hello := e.accept()
				frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, hello)
				if err != nil {
					t.Fatal(err)
				}
				size = len(frame) - wire.HeaderSize
				token = strings.Repeat("x", 3000+wire.MaxHello-size)
			}
			s := newTestSubscriber(t, cfg)
			if more == 0 {
				e.accept()
				return
			}
			<-s.Done()
			if CodeOf(s.Err()) != CodeFrameTooLarge || len(e.conns) > 0 {
				t.Errorf("one byte too many ended with %v", s.Err())
			}
		})
	}
}

// An edge that takes the connection and does not answer Hello is given up after DialTimeout, as is
// one that does not take it.
func TestAHandshakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, DialTimeout: 3 * time.Second})
		c, _ := e.accept()
		began := time.Now()
		if d := c.gone().Sub(began); d != 3*time.Second {
			t.Errorf("given up after %v", d)
		}
		e.welcome()
		pass(time.Minute)
		e.nobodyDials()
	})
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), make(chan time.Time, 100)
		newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, DialTimeout: 3 * time.Second, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			ended <- time.Now()
			return nil, ctx.Err()
		}})
		if d := (<-ended).Sub(began); d != 3*time.Second {
			t.Errorf("given up after %v", d)
		}
	})
}

// Before Welcome an edge may send what the client does not know, send it elsewhere, or send what is
// no Welcome.
func TestInsteadOfWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipeEdge(t), newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"a"}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "b" {
				return b.dial(ctx, addr)
			}
			return a.dial(ctx, addr)
		}})
		c, _ := a.accept()
		bad := []byte{0, 0, 0, 0, 0xff}
		wire.PutHeader(bad, 1, wirev1.FrameType_FRAME_TYPE_WELCOME)
		if _, err := c.conn.Write(bad); err != nil {
			t.Fatal(err)
		}
		c.gone()
		if s.Stats().Connects != 0 {
			t.Error("welcomed by nonsense")
		}
		c, _ = a.accept()
		c.send(wirev1.FrameType(200), &wirev1.Error{})
		c.send(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, Addresses: []string{"b"}})
		c = b.welcome()
		synctest.Wait()
		if st := s.Stats(); st.Connects != 1 || !st.Connected {
			t.Errorf("stats %+v", st)
		}
		c.close()
		a.welcome() // the detour was one
	})
}

// Who is told to go away, at a time or at once, takes its last ACKs with it, and is back then: an
// edge that drains has its clients come to others at times of its choice.
func TestGoingAway(t *testing.T) {
	for _, due := range []time.Duration{0, 700 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, AckDelay: time.Hour, MinBackoff: 100 * time.Millisecond})
			got := newSeqLog()
			start(t, s, "room/a", got.handle, WithAck())
			c := e.welcome()
			c.subscribed(7, 0, true)
			c.message("room/a", 1, 0)
			got.wait(t, 1)
			synctest.Wait()
			began := time.Now()
			c.send(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, ReconnectAfterMs: uint32(due.Milliseconds())})
			if due > 0 {
				c.message("room/a", 2, 0)
				got.wait(t, 1, 2)
				c.ackedThrough("room/a", 2)
			} else {
				c.ackedThrough("room/a", 1)
			}
			if d := time.Since(began); d != due {
				t.Errorf("told to be back in %v, it left after %v", due, d)
			}
			e.welcome()
			if d := time.Since(began); due > 0 && d != due || due == 0 && (d == 0 || d > 100*time.Millisecond) {
				t.Errorf("told to be back in %v, it is back after %v", due, d)
			}
		})
	}
}

// A GoAway that can't be read is one all the same.
func TestAGoAwayThatCanNotBeRead(t *testing.T) {
	if g := decodeGoAway([]byte{0xff}); g.why.Code != CodeDraining || !g.due.IsZero() || len(g.places()) > 0 {
		t.Errorf("%+v", g)
	}
	if e := decodeError([]byte{0xff}); e.Code != CodeInternal || !e.Retryable() {
		t.Errorf("%+v", e)
	}
}

// Frames that can't be decoded end the connection, and no more than that.
func TestABadFrameEndsTheConnection(t *testing.T) {
	for _, ft := range []wirev1.FrameType{
		wirev1.FrameType_FRAME_TYPE_MESSAGE, wirev1.FrameType_FRAME_TYPE_PROGRESS, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED,
		wirev1.FrameType_FRAME_TYPE_PUBLISHED, wirev1.FrameType_FRAME_TYPE_REFRESHED, wirev1.FrameType_FRAME_TYPE_ERROR,
	} {
		for _, inline := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				e, ended := newPipeEdge(t), make(chan error, 1)
				s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Inline: inline, OnDisconnect: func(err error) { ended <- err }})
				s.mu.Lock() // who has asked nothing passes answers over
				roomFor(s, "publishing", publishing.New)
				roomFor(s, "renewal", renewal.New)
				s.mu.Unlock()
				c := e.welcome()
				bad := []byte{0, 0, 0, 0, 0xff}
				wire.PutHeader(bad, 1, ft)
				if _, err := c.conn.Write(bad); err != nil {
					t.Fatal(err)
				}
				c.gone()
				if err := <-ended; !errors.Is(err, errBadMessage) {
					t.Errorf("%v that can't be decoded ended the connection with %v", ft, err)
				}
				e.welcome()
			})
		}
	}
}
