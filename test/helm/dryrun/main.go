// Command dryrun shows every manifest of the chart and of its examples to a real Kubernetes API
// server, which decodes, defaults, admits and validates them as it does a user's, and keeps none
// (dryRun=All, fieldValidation=Strict). Then helm installs, upgrades, rolls back and uninstalls a
// release there, of which no pod runs. It runs the server and its etcd itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pushmesh/pushmesh/test/helm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dryrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	server, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if err := server.prepare(ctx); err != nil {
		return err
	}
	if err := server.refuses(ctx); err != nil {
		return err
	}
	h, err := helm.Open()
	if err != nil {
		return err
	}
	files, err := helm.Values()
	if err != nil {
		return err
	}
	for _, file := range files {
		objects, err := h.Template("--values", file)
		if err != nil {
			return err
		}
		// Containers and settings that a user adds are not held to the restricted profile.
		if err := server.takes(ctx, filepath.Base(file), objects, filepath.Base(file) != "everything.yaml"); err != nil {
			return err
		}
	}
	if err := server.releases(ctx, h); err != nil {
		return err
	}
	if files, err = helm.Examples(); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := helm.Objects(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := server.takes(ctx, "examples/"+filepath.Base(file), objects, true); err != nil {
			return err
		}
	}
	return nil
}

// takes has the server look at all objects of a file. Where confined is set, nothing may go against
// the restricted profile of pods.
func (s *server) takes(ctx context.Context, file string, objects []helm.Object, confined bool) error {
	var faults []error
	for _, o := range objects {
		warnings, err := s.apply(ctx, o, true)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %s %s: %w", file, o.Kind(), o.Name(), err))
		}
		if confined && len(warnings) > 0 {
			faults = append(faults, fmt.Errorf("%s: %s %s: the server warns: %s", file, o.Kind(), o.Name(), strings.Join(warnings, "; ")))
		}
	}
	fmt.Printf("%s: %d manifests, %d faults\n", file, len(objects), len(faults))
	return errors.Join(faults...)
}

// refuses proves that the server looks: each of these has one fault.
func (s *server) refuses(ctx context.Context) error {
	h, err := helm.Open()
	if err != nil {
		return err
	}
	objects, err := h.Template("--values", filepath.Join(helm.Chart(), "ci", "open.yaml"))
	if err != nil {
		return err
	}
	service := helm.Find(objects, "Service", "pushmesh-edge")
	service.Map("spec")["externalTrafficPolicies"] = "Local"
	deployment := helm.Find(objects, "Deployment", "pushmesh-edge")
	deployment.Pod().Map("spec", "containers", 0)["lifecycle"] = map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": 10_000}}}
	budget := helm.Find(objects, "PodDisruptionBudget", "pushmesh-edge")
	budget.Map("spec")["minAvailable"] = 1
	for _, c := range []struct {
		object helm.Object
		says   string
	}{
		{service, "field not declared in schema"},
		{deployment, "preStop.sleep"},
		{budget, "cannot be both set"},
	} {
		if _, err := s.apply(ctx, c.object, true); err == nil || !strings.Contains(err.Error(), c.says) {
			return fmt.Errorf("a wrong %s: want a refusal that says %q: %w", c.object.Kind(), c.says, err)
		}
	}
	root := helm.Find(objects, "Deployment", "pushmesh-store")
	root.Pod().Map("spec", "securityContext")["runAsNonRoot"] = false
	if warnings, err := s.apply(ctx, root, true); err != nil || len(warnings) == 0 {
		return fmt.Errorf("a pod that may be root: want a warning, not %q: %w", warnings, err)
	}
	return nil
}
