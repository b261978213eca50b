package subscribe

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const (
	// ackDelay is how long an ACK may wait for others to share a frame with.
	ackDelay = 2 * time.Millisecond
	// maxUpward is how many bytes may wait for an edge before the stream's requests are not read
	// any further.
	maxUpward = 256 << 10
	// entriesOfFrame bounds an Ack frame: 4,096 entries with the longest topics are about a MiB.
	entriesOfFrame = 2048
	// entrySize is about what an entry takes beside its topic.
	entrySize = 32
)

// toEdge is what goes to one edge. Its goroutine writes; ACKs are gathered meanwhile. Order is kept
// between ACKs and everything else.
type toEdge struct {
	conn net.Conn
	// silent is how long a write may take.
	silent time.Duration
	wake   chan struct{} // 1: something waits
	room   chan struct{} // 1: something was written
	done   chan struct{} // closed when the goroutine has ended
	end    chan struct{} // closed by stop
	once   sync.Once

	mu       sync.Mutex
	buf      []byte
	acks     []*wirev1.Ack_Entry // behind buf
	through  map[ackKey]*wirev1.Ack_Entry
	size     int // of acks, about
	urgent   bool
	finished bool
	failed   bool

	// mark and pings make the sent_at of the router's own Pings.
	mark  uint64
	pings uint32
}

type ackKey struct {
	topic string
	epoch uint64
	sub   uint32
}

func newUpward(conn net.Conn, silent time.Duration) *toEdge {
	return &toEdge{
		conn: conn, silent: silent, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{}), end: make(chan struct{}),
		through: map[ackKey]*wirev1.Ack_Entry{}, mark: uint64(rand.Uint32()) << 32,
	}
}

// ack gathers entries. Of entries that mean all up to a seq the highest says it for all; single
// ones stay, for they also cover what was Nacked.
func (u *toEdge) ack(entries []*wirev1.Ack_Entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.finished || u.failed {
		return
	}
	for _, e := range entries {
		key := ackKey{e.GetTopic(), e.GetEpoch(), e.GetSub()}
		if e.GetThrough() {
			if last := u.through[key]; last != nil {
				last.Seq = max(last.GetSeq(), e.GetSeq())
				continue
			}
			u.through[key] = e
		}
		u.acks = append(u.acks, e)
		u.size += len(e.GetTopic()) + entrySize
	}
	signal(u.wake)
}

// frame adds a frame behind everything before it. It fails only where m can't be encoded.
func (u *toEdge) frame(t wirev1.FrameType, m proto.Message) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.finished || u.failed {
		return nil
	}
	if err := u.seal(); err != nil {
		return err
	}
	buf, err := wire.Append(u.buf, t, m)
	if err != nil {
		return invalid("%v", err)
	}
	u.buf, u.urgent = buf, true
	signal(u.wake)
	return nil
}

// seal makes frames of the ACKs gathered. u.mu is held.
func (u *toEdge) seal() error {
	for len(u.acks) > 0 {
		n := min(len(u.acks), entriesOfFrame)
		buf, err := wire.Append(u.buf, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: u.acks[:n]})
		if err != nil {
			return invalid("%v", err)
		}
		u.buf, u.acks = buf, u.acks[n:]
	}
	u.acks, u.size = nil, 0
	clear(u.through)
	return nil
}

// full reports whether too much waits; room is signalled when that may have changed.
func (u *toEdge) full() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.failed && !u.finished && len(u.buf)+u.size > maxUpward
}

// own reports whether a Pong answers one of the router's own Pings.
func (u *toEdge) own(sentAt uint64) bool { return sentAt&^0xffffffff == u.mark }

// finish has everything written that waits, takes nothing more, and reports whether that went well.
func (u *toEdge) finish() bool {
	u.mu.Lock()
	u.finished = true
	u.mu.Unlock()
	signal(u.wake)
	<-u.done
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.failed
}

// stop ends the goroutine.
func (u *toEdge) stop() { u.once.Do(func() { close(u.end) }) }

// run writes until stop or finish, or until the connection breaks, which the reader finds out.
func (u *toEdge) run() {
	defer close(u.done)
	defer signal(u.room)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	gather := time.NewTimer(time.Hour)
	defer gather.Stop()
	for {
		select {
		case <-u.end:
			return
		case <-beat.C:
			u.ping()
		case <-u.wake:
			if u.onlyAcks() {
				gather.Reset(ackDelay)
				select {
				case <-gather.C:
				case <-u.end:
					return
				}
			}
		}
		if over := u.write(); over {
			return
		}
	}
}

func (u *toEdge) onlyAcks() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.urgent && !u.finished && u.size < maxUpward/2
}

func (u *toEdge) ping() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pings++
	if buf, err := wire.Append(u.buf, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: u.mark | uint64(u.pings)}); err == nil {
		u.buf = buf
	}
}

// write writes what waits and reports whether that was the end.
func (u *toEdge) write() (over bool) {
	u.mu.Lock()
	err := u.seal()
	out := u.buf
	u.buf, u.urgent = nil, false
	over = u.finished
	u.mu.Unlock()
	if err == nil && len(out) > 0 {
		if err = u.conn.SetWriteDeadline(time.Now().Add(u.silent)); err == nil {
			_, err = u.conn.Write(out)
		}
	}
	if err != nil {
		u.mu.Lock()
		u.failed = true
		u.mu.Unlock()
		_ = u.conn.Close() // the reader finds out
		return true
	}
	signal(u.room)
	return over
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
