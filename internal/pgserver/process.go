package pgserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Account that Postgres runs as; nil: this process's own.
type Account struct{ uid, gid uint32 }

// Unprivileged finds an account for Postgres, which refuses to run as root.
func Unprivileged() (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is an account: our own
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		return &Account{uint32(uid), uint32(gid)}, nil
	}
	return nil, errors.Join(errs...)
}

// Own gives a file to the account.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// Run makes cmd run as the account, in a group of its own, so that a Ctrl-C for us does not end it
// before us.
func (a *Account) Run(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// TempDir makes a folder that Postgres's account may enter, in another one ("": that of temporary
// files): those of testing.T lie in one that only root may.
func TempDir(in string) (string, error) {
	as, err := Unprivileged()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(in, "pushmesh-pg-")
	if err != nil {
		return "", err
	}
	return dir, as.Own(dir)
}

// Version names the variable with the major version of Postgres that tests shall run with, for
// scripts; unset, it is Debian's newest.
const Version = "PUSHMESH_TEST_POSTGRES"

// Binaries names the variable with the folder of initdb and postgres of that version.
const Binaries = "PUSHMESH_TEST_POSTGRES_BIN"

// binaries is the folder of the Postgres to start.
func binaries() (string, error) {
	if dir := os.Getenv(Binaries); dir != "" {
		return dir, nil
	}
	if version := os.Getenv(Version); version != "" {
		return "", fmt.Errorf("%s is %s, but %s does not say where that is: go through scripts/with-servers", Version, version, Binaries)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		version := func(path string) int {
			v, _ := strconv.Atoi(strings.Split(path, "/")[4])
			return v
		}
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("no Postgres under /usr/lib/postgresql nor on the path: %w", err)
	}
	return filepath.Dir(path), nil
}

// signal goes to the postmaster first and then to its children, each of which is a group of its
// own.
func (s *Server) signal(sig syscall.Signal) error {
	pid := s.pid()
	children, err := childrenOf(pid)
	if err != nil {
		return err
	}
	if sig != syscall.SIGKILL { // a dead postmaster's children would be found no more
		if err := s.cmd.Process.Signal(sig); err != nil {
			return err
		}
		if children, err = childrenOf(pid); err != nil {
			return err
		}
	}
	var errs []error
	for _, child := range children {
		if err := syscall.Kill(child, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	if sig == syscall.SIGKILL {
		errs = append(errs, s.cmd.Process.Kill())
	}
	return errors.Join(errs...)
}

// gone waits until none of the processes runs. A zombie counts as gone: it holds no memory, and who
// reaps it is not known.
func gone(pids []int) error {
	deadline := time.After(ReadyWithin)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || fields[0] == "Z" || fields[0] == "X"
		})
		if len(pids) == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-deadline:
			return fmt.Errorf("postgres: processes %v do not end", pids)
		}
	}
}

// stat reads what follows the name in a process's stat (proc(5)): state, parent, …. The name may
// hold spaces and brackets.
func stat(path string) ([]string, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- of /proc
	if err != nil {
		return nil, err // ended meanwhile
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return nil, fmt.Errorf("%s: not a stat", path)
	}
	return fields, nil
}

// childrenOf a process, from /proc.
func childrenOf(pid int) (children []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		fields, err := stat(path)
		if err != nil || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}
