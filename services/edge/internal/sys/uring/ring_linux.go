package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a pair of queues shared with the kernel. One goroutine uses it.
type ring struct {
	fd         int
	mem, slots []byte // mappings
	sqes       []sqe
	cqes       []cqe
	sqTail     *uint32 // ours to move
	cqHead     *uint32 // ours to move
	cqTail     *uint32 // the kernel's
	sqMask     uint32
	cqMask     uint32
	tail       uint32 // of the submissions made so far
}

// setups are tried in order: the first one keeps the kernel from interrupting a thread, and needs
// Linux 5.19. None binds the ring to one thread: a loop goes on in whichever Go's scheduler wakes
// it.
var setups = []uint32{
	setupSubmitAll | setupCQSize | setupCoopTaskrun,
	setupSubmitAll | setupCQSize,
}

func newRing(entries uint32) (*ring, error) {
	var p params
	var errno unix.Errno
	r := &ring{fd: -1}
	for _, flags := range setups {
		p = params{flags: flags, cqEntries: 2 * entries}
		if r.fd, errno = setup(entries, &p); errno == 0 {
			break
		}
		r.fd = -1
		if errno != unix.EINVAL {
			break
		}
	}
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	unix.CloseOnExec(r.fd)
	if err := r.open(&p); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *ring) open(p *params) (err error) {
	const features = featSingleMmap | featNoDrop
	if p.features&features != features {
		return fmt.Errorf("io_uring lacks features: %#x", p.features)
	}
	if err := r.supports(opSend, opSendmsg); err != nil {
		return err
	}
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	const rw, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.mem, err = unix.Mmap(r.fd, offSQRing, int(size), rw, shared); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if r.slots, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), rw, shared); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	base := unsafe.Pointer(unsafe.SliceData(r.mem))
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Add(base, off)) }
	r.sqTail, r.cqHead, r.cqTail = at(p.sq.tail), at(p.cq.head), at(p.cq.tail)
	r.sqMask, r.cqMask = *at(p.sq.mask), *at(p.cq.mask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(unsafe.SliceData(r.slots))), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Add(base, p.cq.cqes)), p.cqEntries)
	order := unsafe.Slice(at(p.sq.array), p.sqEntries)
	for i := range order {
		order[i] = uint32(i)
	}
	return nil
}

// supports asks the kernel whether it knows the operations.
func (r *ring) supports(ops ...int) error {
	var p probe
	if errno := register(r.fd, registerProbe, unsafe.Pointer(&p), uintptr(len(p.ops))); errno != 0 {
		return os.NewSyscallError("io_uring_register", errno)
	}
	for _, op := range ops {
		if p.ops[op].flags&opSupported == 0 {
			return fmt.Errorf("io_uring lacks operation %d", op)
		}
	}
	return nil
}

// push makes a submission. The caller sees to it that there are no more than fit.
func (r *ring) push(e sqe) {
	r.sqes[r.tail&r.sqMask] = e
	r.tail++
}

// submit hands n submissions over and gives each completion to done; all are complete once it
// returns without an error. Else untaken says how many of the last ones the kernel has not looked
// at, and the ring must be closed: it still holds them.
func (r *ring) submit(n uint32, done func(userData uint64, res int32)) (untaken uint32, err error) {
	atomic.StoreUint32(r.sqTail, r.tail)
	untaken = n
	for wait := n; wait > 0; {
		taken, errno := enter(r.fd, untaken, wait, enterGetEvents)
		if errno == 0 {
			untaken -= uint32(taken)
		}
		wait -= r.reap(done)
		if errno != 0 && errno != unix.EINTR {
			return untaken, os.NewSyscallError("io_uring_enter", errno)
		}
	}
	return 0, nil
}

func (r *ring) reap(done func(userData uint64, res int32)) (n uint32) {
	head := *r.cqHead
	for tail := atomic.LoadUint32(r.cqTail); head != tail; head++ {
		c := &r.cqes[head&r.cqMask]
		done(c.userData, c.res)
		n++
	}
	atomic.StoreUint32(r.cqHead, head)
	return n
}

func (r *ring) close() error {
	var errs []error
	for _, m := range [][]byte{r.mem, r.slots} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}
