package loop

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
)

// anyone comes in as ann, who may do nothing by herself.
type anyone struct{}

func (anyone) Asks() bool            { return false }
func (anyone) Nameless() *code.Error { return nil }

func (anyone) Identify(exchange.Conn, principals.Shown) (*identity.Principal, *code.Error, bool) {
	return &identity.Principal{User: "ann", Expires: time.Now().Add(time.Hour)}, nil, true
}

// yes allows everything, by a question each.
type yes struct {
	mu    sync.Mutex
	post  func(exchange.Event) bool
	asked int
}

func (y *yes) Known(*identity.Question) (identity.Permission, bool) {
	return identity.Permission{}, false
}
func (y *yes) Patience() time.Duration { return patience }

func (y *yes) Ask(conn exchange.Conn, serial uint64, _ *identity.Question, _ time.Duration) *code.Error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.asked++
	post := y.post
	go post(exchange.Permitted{Conn: conn, Serial: serial, Says: identity.Permission{Allowed: true, Left: time.Second}})
	return nil
}

// What stands behind a request that waits is neither lost nor overtakes it: in the same read, in
// other TLS records, or in part of one.
func TestWhatIsBehindARequestThatWaits(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		for _, secure := range []bool{true, false} {
			hook := &yes{}
			g := guard(t, handshake.Config{}, Config{Send: send, Principals: principals.Config{Door: anyone{}}, Permissions: hook})
			hook.mu.Lock()
			hook.post = g.Post
			hook.mu.Unlock()
			c := dial(t, g.Loop)
			if secure {
				c = g.dial(g.client())
			}
			c.hello(&wirev1.Hello{ClientId: "phone", Token: "t"})
			const many = 300
			go func() {
				for id := uint32(1); id <= many; id++ {
					b := frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: fmt.Sprint("open/", id%3), Payload: make([]byte, id*20)})
					b = append(b, frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(id)})...)
					c.write(b[:len(b)/2])
					c.write(b[len(b)/2:])
				}
			}()
			pong, published := uint64(0), uint32(0)
			for pong < many || published < many {
				switch ft, body, err := c.frame(); {
				case err != nil:
					t.Fatal(err)
				case ft == wirev1.FrameType_FRAME_TYPE_PONG:
					var m wirev1.Pong
					if pong++; proto.Unmarshal(body, &m) != nil || m.GetSentAt() != pong {
						t.Fatalf("%v is number %d", &m, pong)
					}
				case ft == wirev1.FrameType_FRAME_TYPE_PUBLISHED:
					var m wirev1.Published
					if published++; proto.Unmarshal(body, &m) != nil || m.GetId() != published {
						t.Fatalf("%v is number %d", &m, published)
					}
				default:
					t.Fatalf("got %v %q", ft, body)
				}
			}
			hook.mu.Lock()
			if hook.asked != many {
				t.Errorf("asked %d times", hook.asked)
			}
			hook.mu.Unlock()
			eventually(t, "nothing is kept", func() bool { return g.Stats().FrameMemory == 0 })
		}
	})
}
