package publishing

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// host has one connection, or none.
type host struct {
	ext.Host
	l    *link.Conn
	last uint32
}

func (h *host) Link() *link.Conn { return h.l }
func (h *host) Wake()            {}
func (h *host) NextID() uint32   { h.last++; return h.last }

// connected is a room with a connection, whose other end is read to nobody.
func connected(t *testing.T, window uint32) (*Room, *host) {
	t.Helper()
	h := &host{}
	h.reconnect(t, window)
	return New(h), h
}

func (h *host) reconnect(t *testing.T, window uint32) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	h.l = link.New(near)
	h.l.SetWelcome(&wirev1.Welcome{PublishWindow: window, MaxFrame: 200})
}

func keyed(key string) *wirev1.Publish { return &wirev1.Publish{Topic: "a", DedupeKey: key} }

// sent are the keys of the messages that have no answer, in the order of their ids.
func (r *Room) sent() (keys string) {
	for id := range uint32(100) {
		if m := r.unanswered[id]; m != nil {
			keys += m.publish.GetDedupeKey()
		}
	}
	return keys
}

func (r *Room) publishedAs(id uint32) error {
	body, err := proto.Marshal(&wirev1.Published{Id: id, Seq: uint64(id)})
	if err != nil {
		return err
	}
	_, err = r.Frame(wirev1.FrameType_FRAME_TYPE_PUBLISHED, body)
	return err
}

// No more are unanswered than the edge allows, 16 where it does not say, and what waits goes in the
// order of the calls.
func TestTheWindow(t *testing.T) {
	r, _ := connected(t, 0)
	for range 20 {
		r.Add(keyed("k"), true)
	}
	if len(r.unanswered) != defaultWindow || len(r.waiting) != 4 || !r.Owes() || !r.Uses(16) || r.Uses(17) {
		t.Fatalf("%d are unanswered, %d wait", len(r.unanswered), len(r.waiting))
	}
	r, h := connected(t, 2)
	var all []*Message
	for _, key := range []string{"a", "b", "c", "d"} {
		m, flush := r.Add(keyed(key), true)
		if all = append(all, m); flush != (key < "c") {
			t.Errorf("%s is written: %v", key, flush)
		}
	}
	if err := r.publishedAs(2); err != nil || r.sent() != "ac" {
		t.Fatalf("%v, then %q are unanswered", err, r.sent())
	}
	if a := <-all[1].Done(); a.Err != nil || a.Published.GetSeq() != 2 {
		t.Error(a)
	}
	h.l = nil
	r.Broken()
	h.reconnect(t, 5)
	if r.Connected(h.l); r.sent() != "acd" {
		t.Errorf("published again: %q", r.sent())
	}
}

// What is too large, refused, not to be repeated, or forgotten by its caller is answered once, and
// not sent again.
func TestWhatIsNotPublishedAgain(t *testing.T) {
	r, h := connected(t, 5)
	large, _ := r.Add(&wirev1.Publish{Topic: "a", Payload: make([]byte, 300)}, true)
	var bad *link.Unsendable
	if a := <-large.Done(); !errors.As(a.Err, &bad) {
		t.Error(a)
	}
	refused, _ := r.Add(keyed("refused"), true)
	why := errors.New("no")
	if !r.Refused(refused.publish.GetId(), why) || r.Refused(99, why) {
		t.Error("an id that nobody has")
	}
	if a := <-refused.Done(); !errors.Is(a.Err, why) {
		t.Error(a)
	}
	once, _ := r.Add(keyed("once"), false)
	forgotten, _ := r.Add(keyed("forgotten"), true)
	kept, _ := r.Add(keyed("kept"), true)
	if !r.Withdraw(forgotten) {
		t.Error("it was sent")
	}
	h.l = nil
	r.Broken()
	if a := <-once.Done(); !errors.Is(a.Err, ErrBroken) {
		t.Error(a)
	}
	late, flush := r.Add(keyed("late"), true)
	if flush || r.Withdraw(late) {
		t.Error("sent without a connection")
	}
	h.reconnect(t, 5)
	if r.Connected(h.l); r.sent() != "kept" {
		t.Errorf("published again: %q", r.sent())
	}
	waits, _ := r.Add(keyed("waits"), false)
	r.End(why)
	r.Broken()
	var open *Open // the mesh may have it
	if a, b := <-kept.Done(), <-waits.Done(); !errors.Is(a.Err, why) || !errors.As(a.Err, &open) || !errors.Is(b.Err, ErrBroken) {
		t.Error(a, b)
	}
	if _, err := r.Frame(wirev1.FrameType_FRAME_TYPE_PUBLISHED, []byte{0xff}); !errors.Is(err, ext.ErrBadFrame) {
		t.Error(err)
	}
	if known, _ := r.Frame(wirev1.FrameType_FRAME_TYPE_STATED, nil); known || r.Owes() {
		t.Error("a frame of another's")
	}
}
