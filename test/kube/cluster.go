package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/helm"
)

const (
	patience = 5 * time.Minute // for whatever must happen, on a machine that does much else
	// The node's address and networks are those of the network namespace alone, whose ports are all
	// free.
	nodeName  = "node-1"
	nodeIP    = "198.51.100.1"
	podRange  = "10.244.0.0/24"
	services  = "10.96.0.0/16"
	apiserver = "https://127.0.0.1:6443"
)

// cluster is a Kubernetes of one node. Its processes end with the process namespace that they are
// in.
type cluster struct {
	folder string
	// cgroup below which the pods are, on every hierarchy that there is
	cgroup string
	env    []string // of commands that a user types
	tokens map[string]string
	// ended is called when a process ends, which none should.
	ended context.CancelCauseFunc
}

// daemon starts a program that runs to the end, with its output in a file.
func (c *cluster) daemon(name, path string, args ...string) error {
	log, err := os.Create(filepath.Join(c.folder, name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr, command.Dir = log, log, c.folder
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	go func() { c.ended(fmt.Errorf("%s ended: %w", name, command.Wait())) }()
	return nil
}

// tool starts a pinned tool.
func (c *cluster) tool(name string, args ...string) error {
	path, err := helm.Tool(name)
	if err != nil {
		return err
	}
	return c.daemon(name, path, args...)
}

// file writes a file into the folder, and returns where it is.
func (c *cluster) file(name, text string) (string, error) {
	path := filepath.Join(c.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// shell runs a script as a user would, and returns what it prints.
func (c *cluster) shell(ctx context.Context, script string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	command.Dir, command.Env = filepath.Join(c.folder, "work"), c.env
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%w, of:\n%s\n%s", err, script, out.String())
	}
	return out.String(), nil
}

// kubectl runs one command, whose arguments are words without blanks.
func (c *cluster) kubectl(ctx context.Context, words string, args ...any) (string, error) {
	out, err := c.shell(ctx, "kubectl -n prod "+fmt.Sprintf(words, args...))
	return strings.TrimSpace(out), err
}

// await repeats something until it succeeds.
func await(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v: %s", patience, what))
	defer cancel()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-look.C:
		}
	}
}

// config is a kubeconfig of a user.
func (c *cluster) config(user string) (string, error) {
	return c.file(user+".kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": %q}}]}`, apiserver, c.tokens[user]))
}

// control starts etcd, the API server, the controllers and the scheduler.
func (c *cluster) control(ctx context.Context) error {
	var tokens strings.Builder
	c.tokens = map[string]string{}
	for i, u := range [][2]string{
		{"admin", "system:masters"}, {"system:kube-controller-manager", ""}, {"system:kube-scheduler", ""}, {"system:kube-proxy", ""}, {"system:node:" + nodeName, "system:nodes"},
	} {
		secret := make([]byte, 16)
		_, _ = rand.Read(secret) // never fails
		c.tokens[u[0]] = hex.EncodeToString(secret)
		fmt.Fprintf(&tokens, "%s,%s,%d,%s\n", c.tokens[u[0]], u[0], i, u[1])
	}
	tokenFile, err := c.file("tokens", tokens.String())
	if err != nil {
		return err
	}
	// Every namespace holds its pods to the restricted profile.
	admission, err := c.file("admission.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: restricted, enforce-version: latest}
`)
	if err != nil {
		return err
	}
	key := filepath.Join(c.folder, "accounts.key")
	if out, err := exec.CommandContext(ctx, "openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		return fmt.Errorf("openssl: %w: %s", err, out)
	}
	certs := filepath.Join(c.folder, "certs")
	if err := c.tool("etcd", "--data-dir", filepath.Join(c.folder, "etcd"), "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	if err := c.tool("kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "0.0.0.0", "--advertise-address", nodeIP, "--secure-port", "6443",
		"--cert-dir", certs, "--token-auth-file", tokenFile, "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--admission-control-config-file", admission, "--service-cluster-ip-range", services,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", key, "--service-account-key-file", key); err != nil {
		return err
	}
	admin, err := c.config("admin")
	if err != nil {
		return err
	}
	c.env = append(c.env, "KUBECONFIG="+admin)
	if err := await(ctx, "the API server is ready", func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "get --raw /readyz")
		return err
	}); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"kube-controller-manager", []string{"--use-service-account-credentials", "--service-account-private-key-file", key, "--root-ca-file", filepath.Join(certs, "apiserver.crt")}},
		{"kube-scheduler", nil},
	} {
		config, err := c.config("system:" + p.name)
		if err != nil {
			return err
		}
		if err := c.tool(p.name, append(p.args, "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
			"--bind-address", "127.0.0.1", "--leader-elect=false", "--profiling=false")...); err != nil {
			return err
		}
	}
	return nil
}

// node starts containerd, the kubelet, kube-proxy and CoreDNS.
func (c *cluster) node(ctx context.Context) error {
	network, err := c.file("cni/10-pods.conflist", fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`, filepath.Join(c.folder, "addresses"), podRange))
	if err != nil {
		return err
	}
	socket := filepath.Join(c.folder, "containerd.sock")
	config, err := c.file("containerd.toml", fmt.Sprintf(`
version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  # Where root may not say so, nobody is spared when memory runs out.
  restrict_oom_score_adj = true
  sandbox_image = "pause.test/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
`, filepath.Join(c.folder, "containerd"), filepath.Join(c.folder, "containerd-state"), socket, filepath.Dir(network)))
	if err != nil {
		return err
	}
	if err := c.daemon("containerd", "containerd", "--config", config); err != nil {
		return err
	}
	c.env = append(c.env, "CONTAINERD_ADDRESS="+socket, "CONTAINERD_NAMESPACE=k8s.io")
	if err := await(ctx, "containerd answers", func(ctx context.Context) error {
		_, err := c.shell(ctx, "ctr version")
		return err
	}); err != nil {
		return err
	}
	if err := c.images(ctx); err != nil {
		return err
	}
	resolv, err := c.file("resolv.conf", "")
	if err != nil {
		return err
	}
	settings, err := c.file("kubelet.yaml", fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
failSwapOn: false
oomScoreAdj: 0
clusterDomain: cluster.local
clusterDNS: [%s]
resolvConf: %s
podLogsDir: %s
volumePluginDir: %s
# What else is on this machine is nobody's reason to end a pod.
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
`, socket, c.cgroup, nodeIP, resolv, filepath.Join(c.folder, "pods"), filepath.Join(c.folder, "volume-plugins")))
	if err != nil {
		return err
	}
	user, err := c.config("system:node:" + nodeName)
	if err != nil {
		return err
	}
	if err := c.tool("kubelet", "--config", settings, "--kubeconfig", user, "--root-dir", filepath.Join(c.folder, "kubelet"), "--cert-dir", filepath.Join(c.folder, "kubelet-certs"),
		"--hostname-override", nodeName, "--node-ip", nodeIP); err != nil {
		return err
	}
	if user, err = c.config("system:kube-proxy"); err != nil {
		return err
	}
	// Limits of connection tracking are of the whole machine: they stay as they are.
	if settings, err = c.file("proxy.yaml", fmt.Sprintf(`
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
oomScoreAdj: 0
bindAddress: %s
clusterCIDR: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, nodeIP, podRange, nodeName, user)); err != nil {
		return err
	}
	if err := c.tool("kube-proxy", "--config", settings); err != nil {
		return err
	}
	if user, err = c.config("admin"); err != nil {
		return err
	}
	names, err := c.file("Corefile", fmt.Sprintf(".:53 {\n  errors\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n}\n", user))
	if err != nil {
		return err
	}
	if err := c.tool("coredns", "-conf", names); err != nil {
		return err
	}
	return await(ctx, "the node is ready", func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "wait --for=condition=Ready node/%s --timeout=1s", nodeName)
		return err
	})
}

// images makes and imports what the pods need: the release's image under the name that the page
// has, and others under the names of the examples.
func (c *cluster) images(ctx context.Context) error {
	pause, err := os.ReadFile(filepath.Join(c.folder, "pause"))
	if err != nil {
		return err
	}
	nats, err := helm.Tool("nats-server")
	if err != nil {
		return err
	}
	server, err := os.ReadFile(nats)
	if err != nil {
		return err
	}
	base := filepath.Join(c.folder, "base.tar")
	users, err := inTar(base, "etc/passwd")
	if err != nil {
		return err
	}
	entry, err := os.ReadFile(filepath.Join(helm.Root(), "test", "kube", "postgres-entrypoint"))
	if err != nil {
		return err
	}
	for i, im := range []image{
		{name: "pause.test/pause:1", files: map[string][]byte{"pause": pause}, entry: []string{"/pause"}, numeric: "65535:65535"},
		{name: "docker.io/library/nats:2.10-alpine", files: map[string][]byte{"usr/local/bin/nats-server": server}, env: []string{"PATH=/usr/local/bin"}},
		{
			name: "docker.io/library/postgres:15-bookworm", base: base, entry: []string{"/entrypoint"}, env: []string{"PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
			files: map[string][]byte{"entrypoint": entry, "etc/passwd": append(users, "of-the-image:x:999:999::/tmp:/bin/bash\n"...)},
			modes: map[string]int64{"etc/passwd": 0o644},
		},
	} {
		path := filepath.Join(c.folder, fmt.Sprintf("image-%d.tar", i))
		if err := im.write(path); err != nil {
			return err
		}
		if _, err := c.shell(ctx, "ctr images import "+path); err != nil {
			return err
		}
	}
	_, err = c.shell(ctx, `ctr images import ../dist/*.image.tar
name=$(ctr images ls -q | grep /pushmesh:)
ctr images tag "$name" "registry.example.org/pushmesh/pushmesh:${name##*:}"`)
	return err
}

// tail is the end of what the processes and containers said, for whoever wonders why.
func (c *cluster) tail(ctx context.Context) {
	for _, words := range []string{"get pods,pvc,jobs,endpointslices -A -o wide", "get events --sort-by=.lastTimestamp"} {
		out, err := c.kubectl(ctx, "%s", words)
		fmt.Println(out, err)
	}
	logs, _ := filepath.Glob(filepath.Join(c.folder, "*.log"))
	pods, _ := filepath.Glob(filepath.Join(c.folder, "pods", "*", "*", "*.log"))
	for _, path := range append(logs, pods...) {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Println(err)
			continue
		}
		name, _ := filepath.Rel(c.folder, path)
		fmt.Printf("-- %s\n%s\n", name, text[max(len(text)-2000, 0):])
	}
}
