package process

import "syscall"

// tie has the kernel kill the process when the thread that starts it ends.
func tie(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
