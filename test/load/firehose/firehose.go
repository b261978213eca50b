// Package firehose publishes to many topics over the public gRPC API with as little work of its own
// as gRPC allows: frames are encoded once and only renumbered, answers are looked at without being
// decoded into anything. Every message must be answered once, with OK or with a refusal that says
// to try again, which is counted.
package firehose

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Config of a Hose.
type Config struct {
	// Addr of a router.
	Addr string
	// Topics get a message each in every frame.
	Topics []string
	// Size of a payload, random bytes.
	Size int
	// Window is how many frames may be unanswered.
	Window int
	// Rate in frames a second; 0: as many as the window lets through.
	Rate float64
	// Stamp, if any, is told the payload of every message before its frame is sent, and the time at
	// which that was due.
	Stamp func(payload []byte, due time.Time)
}

// Hose is one stream of one producer. Run may be called once.
type Hose struct {
	cfg  Config
	conn *grpc.ClientConn
	call grpc.ClientStream

	answered atomic.Int64
	refused  atomic.Int64
	quit     chan struct{}
	room     chan *frame // frames that may be sent
	mu       sync.Mutex
	waiting  map[uint64]*sent // by number of the frame
	took     []time.Duration
}

// sent is a frame without all of its answers.
type sent struct {
	frame *frame
	due   time.Time
	left  int
	got   []bool
}

// Dial opens the stream.
func Dial(ctx context.Context, cfg Config) (*Hose, error) {
	conn, err := grpc.NewClient(cfg.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(8<<20), grpc.WithWriteBufferSize(256<<10))
	if err != nil {
		return nil, fmt.Errorf("firehose: %w", err)
	}
	h := &Hose{cfg: cfg, conn: conn, quit: make(chan struct{}), room: make(chan *frame, cfg.Window), waiting: map[uint64]*sent{}}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	h.call, err = conn.NewStream(ctx, desc, pushmeshv1.PublishService_PublishStream_FullMethodName, grpc.ForceCodecV2(codec.Codec{}), grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("firehose: %w", err), conn.Close())
	}
	for range cfg.Window {
		payloads := make([][]byte, len(cfg.Topics))
		for i := range payloads {
			payloads[i] = make([]byte, cfg.Size)
			_, _ = rand.Read(payloads[i]) // it never fails
		}
		h.room <- newFrame(cfg.Topics, payloads)
	}
	return h, nil
}

// Answered is how many messages were answered with OK so far.
func (h *Hose) Answered() int64 { return h.answered.Load() }

// Refused is how many messages were refused so far, to be tried again.
func (h *Hose) Refused() int64 { return h.refused.Load() }

// refusal reports whether a code means that nothing was published, and that trying again may help.
func refusal(code wirev1.Code) bool {
	switch code {
	case wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_UNAVAILABLE:
		return true
	}
	return false
}

// Run publishes for a while, waits for every answer and closes the stream. It returns how long
// answers took, one time for each frame: from when it was due to be sent to its last answer.
func (h *Hose) Run(ctx context.Context, span time.Duration) ([]time.Duration, error) {
	return h.run(ctx, span, maxNumber)
}

// RunFrames is Run for a number of frames.
func (h *Hose) RunFrames(ctx context.Context, n int) error {
	_, err := h.run(ctx, time.Hour, uint64(n))
	return err
}

func (h *Hose) run(ctx context.Context, span time.Duration, frames uint64) ([]time.Duration, error) {
	received := make(chan error, 1)
	go func() { received <- h.receive() }()
	err := h.send(ctx, span, frames)
	err = errors.Join(err, h.call.CloseSend())
	if recvErr := <-received; recvErr != nil {
		err = errors.Join(err, recvErr)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) > 0 && err == nil {
		err = fmt.Errorf("firehose: %d frames were not answered", len(h.waiting))
	}
	slices.Sort(h.took)
	return h.took, errors.Join(err, h.conn.Close())
}

func (h *Hose) send(ctx context.Context, span time.Duration, frames uint64) error {
	began := time.Now()
	for number := range frames {
		due := time.Now()
		if h.cfg.Rate > 0 {
			due = began.Add(time.Duration(float64(number) / h.cfg.Rate * float64(time.Second)))
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
			}
		}
		if due.Sub(began) >= span {
			return nil
		}
		var f *frame
		select {
		case f = <-h.room:
		case <-h.quit:
			return nil // receive says why
		case <-ctx.Done():
			return ctx.Err()
		}
		if h.cfg.Rate == 0 {
			due = time.Now() // it waits for nothing but the window
		}
		n := len(f.refs)
		first := number * uint64(n)
		if first+uint64(n) > maxNumber {
			return errors.New("firehose: out of numbers")
		}
		f.number(first)
		if h.cfg.Stamp != nil {
			for _, payload := range f.payloads {
				h.cfg.Stamp(payload, due)
			}
		}
		h.mu.Lock()
		h.waiting[number] = &sent{frame: f, due: due, left: n, got: make([]bool, n)}
		h.mu.Unlock()
		if err := h.call.SendMsg(codec.Encoded(f.bytes)); err != nil {
			return nil //nolint:nilerr // receive says why
		}
	}
	return nil
}

func (h *Hose) receive() error {
	defer close(h.quit)
	var answer codec.Encoded
	for {
		err := h.call.RecvMsg(&answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("firehose: %w", err)
		}
		if err := h.take(answer); err != nil {
			return err
		}
	}
}

// take counts the results of one answer.
func (h *Hose) take(answer []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := uint64(len(h.cfg.Topics))
	answered, refused := int64(0), int64(0)
	var last *sent // results of a frame mostly come together
	lastNumber := ^uint64(0)
	err := Results(answer, func(ref uint64, code wirev1.Code, text []byte) error {
		if code != 0 && !refusal(code) {
			return fmt.Errorf("firehose: refused: code %d %s", int32(code), text)
		}
		number := ref / n
		if number != lastNumber {
			last, lastNumber = h.waiting[number], number
		}
		if last == nil || last.got[ref%n] {
			return fmt.Errorf("firehose: message %d was answered twice", ref)
		}
		last.got[ref%n] = true
		if code == 0 {
			answered++
		} else {
			refused++
		}
		if last.left--; last.left == 0 {
			h.took = append(h.took, time.Since(last.due))
			delete(h.waiting, number)
			h.room <- last.frame
			last, lastNumber = nil, ^uint64(0)
		}
		return nil
	})
	h.answered.Add(answered)
	h.refused.Add(refused)
	return err
}
