package procmesh

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// whose is the name of the process that has the socket bound to a local address; "": none of the
// mesh's.
func (m *Mesh) whose(addr net.Addr) string {
	inode, all := inodeOf(addr), m.mesh.Load()
	if inode == "" || all == nil {
		return ""
	}
	for _, p := range all.All() {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
				return p.Name
			}
		}
	}
	return ""
}

// inodeOf finds the socket bound to an IPv4 address in the kernel's table.
func inodeOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return ""
	}
	local := fmt.Sprintf("%08X:%04X", binary.LittleEndian.Uint32(tcp.IP.To4()), tcp.Port)
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && f[1] == local {
			return f[9]
		}
	}
	return ""
}
