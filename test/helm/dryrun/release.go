package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/pushmesh/pushmesh/test/helm"
)

const deployments = "/apis/apps/v1/namespaces/" + namespace + "/deployments"

// releases has helm work on the server as a user's does. Nobody runs pods there, nor the Jobs of
// hooks, so these are left out.
func (s *server) releases(ctx context.Context, h helm.Helm) error {
	config := filepath.Join(s.folder, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": %q}}]}`, s.base, s.token)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	values := func(name string) string { return "--values=" + filepath.Join(helm.Chart(), "ci", name+".yaml") }
	run := func(command string, args ...string) error {
		_, err := h.Run(append([]string{command, "pushmesh", "--kubeconfig", config, "--namespace", namespace, "--no-hooks"}, args...)...)
		return err
	}
	edges := func(when string, want int) error {
		answer, _, err := s.ask(ctx, http.MethodGet, deployments+"/pushmesh-edge", nil)
		if err != nil {
			return err
		}
		var d struct{ Spec struct{ Replicas int } }
		if err := json.Unmarshal(answer, &d); err != nil {
			return err
		}
		if d.Spec.Replicas != want {
			return fmt.Errorf("%s there are %d edges, want %d", when, d.Spec.Replicas, want)
		}
		return nil
	}
	autoscaled := []string{helm.Chart(), values("open"), "--set", "edge.hpa.enabled=true"}
	for _, step := range []func() error{
		func() error { return run("install", helm.Chart(), values("open"), "--set", "edge.replicas=4") },
		func() error { return edges("after the install", 4) },
		// The autoscaler takes over the edges that are there.
		func() error { return run("upgrade", autoscaled...) },
		func() error { return edges("after an upgrade that brings the autoscaler", 4) },
		func() error {
			_, err := s.apply(ctx, helm.Object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "pushmesh-edge"}, "spec": map[string]any{"replicas": 7}}, false)
			return err
		},
		func() error { return run("upgrade", append(autoscaled, "--set", "edge.settings.shed-lag=300ms")...) },
		func() error { return edges("after the autoscaler and an upgrade", 7) },
		// Nothing that can't be changed is changed, from any values to any other.
		func() error { return run("upgrade", helm.Chart(), values("production")) },
		func() error { return run("upgrade", helm.Chart(), values("everything")) },
		func() error { return run("upgrade", helm.Chart(), values("changeover")) },
		func() error { return run("rollback", "1") },
		func() error { return edges("after the rollback", 4) },
		func() error { return run("uninstall") },
		func() error {
			answer, _, err := s.ask(ctx, http.MethodGet, deployments, nil)
			if err != nil {
				return err
			}
			var list struct{ Items []json.RawMessage }
			if err := json.Unmarshal(answer, &list); err != nil {
				return err
			}
			if len(list.Items) > 0 {
				return fmt.Errorf("%d Deployments are left", len(list.Items))
			}
			return nil
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Println("a release: installed, upgraded, rolled back, uninstalled")
	return nil
}
