package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// ErrNotInstalled says that a program isn't on this machine.
var ErrNotInstalled = errors.New("not installed")

// find looks for a program, also where Debian keeps those for root.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if path := filepath.Join(dir, name); fileExists(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrNotInstalled)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// StartRedis starts a redis-server that keeps nothing.
func (d Dir) StartRedis(ctx context.Context) (_ *Process, err error) {
	defer try.Catch(&err)
	path := try.Get(find("redis-server"))
	return d.peer(ctx, "redis-server", func(port string) (string, []string) {
		args := []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--maxclients", "19000"}
		// Clients come from all of 127.0.0.0/8, which redis doesn't take for loopback.
		return path, append(args, "--protected-mode", "no")
	})
}

// StartMosquitto starts a mosquitto that lets anyone in and keeps nothing.
func (d Dir) StartMosquitto(ctx context.Context) (_ *Process, err error) {
	defer try.Catch(&err)
	path := try.Get(find("mosquitto"))
	conf := filepath.Join(string(d), "mosquitto.conf")
	return d.peer(ctx, "mosquitto", func(port string) (string, []string) {
		// A file that can't be written shows as a server that doesn't listen.
		_ = os.WriteFile(conf, []byte("listener "+port+" 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\nlog_type error\nuser root\n"), 0o600)
		return path, []string{"-c", conf}
	})
}

// StartBare starts one of the bare loops; variant is the name of its binary in the folder dir.
func (d Dir) StartBare(ctx context.Context, dir, variant string) (*Process, error) {
	path := filepath.Join(dir, variant)
	if !fileExists(path) {
		return nil, fmt.Errorf("%s: %w", variant, ErrNotInstalled)
	}
	return d.peer(ctx, variant, func(port string) (string, []string) { return path, []string{port} })
}

// StartEtcd starts an etcd of one, whose log and data are in a folder.
func (d Dir) StartEtcd(ctx context.Context, path, folder string) (_ *Process, err error) {
	defer try.Catch(&err)
	peers := try.Get(ports.Addr())
	return d.peer(ctx, "etcd", func(port string) (string, []string) {
		clients, members := "http://127.0.0.1:"+port, "http://"+peers
		return path, []string{
			"--name", "etcd", "--data-dir", folder, "--log-level", "error", "--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", members, "--initial-advertise-peer-urls", members, "--initial-cluster", "etcd=" + members,
		}
	})
}

// StartCentrifugo starts a Centrifugo that lets anyone in, with its API beside it, and keeps
// nothing.
func (d Dir) StartCentrifugo(ctx context.Context, path string) (*Process, error) {
	conf := filepath.Join(string(d), "centrifugo.json")
	return d.peer(ctx, "centrifugo", func(port string) (string, []string) {
		// A file that can't be written shows as a server that doesn't start.
		_ = os.WriteFile(conf, []byte(`{"http_server": {"address": "127.0.0.1", "port": `+port+`}, "log": {"level": "error"},
			"client": {"insecure": true}, "http_api": {"insecure": true}, "usage_stats": {"disabled": true}}`), 0o600)
		return path, []string{"--config", conf}
	})
}
