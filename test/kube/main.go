// Command kube installs the Helm chart as docs/kubernetes.md says, on a Kubernetes of one node that
// it starts itself, and rolls it out, drains it and kills it under traffic. scripts/kube-test gives
// it namespaces of its own, with which everything ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

var began = time.Now()

func say(format string, args ...any) {
	fmt.Printf("%4.0f s  "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
}

func main() {
	folder := flag.String("folder", "", "what scripts/kube-test prepared")
	cgroup := flag.String("cgroup", "", "of the pods")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := &cluster{folder: *folder, cgroup: *cgroup}
	c.env = []string{"HOME=" + filepath.Join(c.folder, "work"), "PATH=" + filepath.Join(c.folder, "bin") + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	running, ended := context.WithCancelCause(ctx)
	c.ended = ended
	err := run(running, c)
	if err != nil {
		err = errors.Join(err, context.Cause(running))
		c.tail(context.WithoutCancel(ctx))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c *cluster) error {
	if err := c.control(ctx); err != nil {
		return err
	}
	if err := c.node(ctx); err != nil {
		return err
	}
	say("the node is ready")
	r := &release{cluster: c}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"the page's commands, from nothing", r.install},
		{"who has no proof does not get in, who has gets a message", r.closed},
		{"traffic", r.traffic},
		{"an upgrade that changes edges", r.edges},
		{"an upgrade that changes all tiers", r.all},
		{"an eviction, as of a node that is drained", r.evict},
		{"processes that are killed", r.kill},
		{"what came", r.judge},
		{"uninstalled", r.uninstall},
	} {
		say("== %s", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}
