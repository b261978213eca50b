package loop

import (
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// lateSender sends as a kernel may that was given a batch: nothing before Flush, then the sockets
// in any order, of each as much or as little as it likes.
type lateSender struct {
	rand    *rand.Rand
	sends   []lateSend
	results []poll.Result
}

type lateSend struct {
	fd     int
	pieces [][]byte
}

func newLateSender(schedule uint64) *lateSender {
	return &lateSender{rand: rand.New(rand.NewPCG(schedule, 0))}
}

func (s *lateSender) Add(fd int, pieces [][]byte) { s.sends = append(s.sends, lateSend{fd, pieces}) }
func (s *lateSender) Full() bool                  { return len(s.sends) >= 5 }
func (s *lateSender) Mode() poll.Mode             { return poll.ModeUring }
func (s *lateSender) Close() error                { return nil }

func (s *lateSender) Flush() []poll.Result {
	s.results = make([]poll.Result, len(s.sends))
	for _, i := range s.rand.Perm(len(s.sends)) {
		s.results[i] = s.send(&s.sends[i])
	}
	clear(s.sends)
	s.sends = s.sends[:0]
	return s.results
}

func (s *lateSender) send(one *lateSend) poll.Result {
	var all []byte
	for _, b := range one.pieces {
		all = append(all, b...)
	}
	if len(all) > 0 && s.rand.IntN(3) == 0 {
		// a part: never nothing, for that a socket must be full
		all = all[:1+s.rand.IntN(len(all))]
	}
	n, err := unix.Write(one.fd, all)
	if errors.Is(err, unix.EAGAIN) {
		return poll.Result{Err: poll.ErrAgain}
	}
	return poll.Result{N: max(n, 0), Err: err}
}
