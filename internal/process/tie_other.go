//go:build !linux

package process

import "syscall"

// tie does nothing: only Linux ends children with their parents.
func tie(*syscall.SysProcAttr) {}
