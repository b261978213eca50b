package mesh

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// What a child of these tests does besides listening, by name.
const (
	// set: this process is a child; the file that children note their ends in
	childEnv   = "PUSHMESH_TEST_MESH_CHILD"
	stubborn   = "PUSHMESH_TEST_MESH_STUBBORN"
	stillborn  = "PUSHMESH_TEST_MESH_STILLBORN"
	wrongfully = "PUSHMESH_TEST_MESH_WRONGFULLY"
)

// TestMain makes the test binary a tier when it is started as one: it listens, is ready, and ends
// with SIGTERM.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		m.Run()
		return
	}
	child(filepath.Base(os.Args[0]))
}

func child(binary string) {
	name := argument("--id", binary)
	if os.Getenv(stillborn) == name {
		panic("stillborn")
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	addr := argument("--listen", net.JoinHostPort(argument("-a", ""), argument("-p", "")))
	if _, err := net.Listen("tcp", addr); err != nil {
		panic(err)
	}
	if h := argument("--http", ""); h != "" {
		l, err := net.Listen("tcp", h)
		if err != nil {
			panic(err)
		}
		go func() { _ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
	}
	<-end
	if os.Getenv(stubborn) == name {
		select {}
	}
	note, err := os.OpenFile(os.Getenv(childEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(note, name)
	if os.Getenv(wrongfully) == name {
		panic("wrongfully")
	}
}

func argument(flag, otherwise string) string {
	if i := slices.Index(os.Args, flag); i >= 0 && i+1 < len(os.Args) {
		return os.Args[i+1]
	}
	return otherwise
}
