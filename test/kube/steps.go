package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// balancer is the address that a cloud would give to the edges' Service.
	balancer = "203.0.113.10"
	// machine are the values of a machine of two cores.
	machine = `
edge: {resources: {requests: {cpu: 100m}}}
router: {resources: {requests: {cpu: 100m}}}
store: {resources: {requests: {cpu: 100m}}}
compute: {resources: {requests: {cpu: 100m}}}
schema: {resources: {requests: {cpu: 10m}}}
`
	// open lets everybody in: those who play traffic have no tokens.
	open = `
identity: {issuersExistingSecret: "", open: true}
backends: {existingSecret: "", open: true}
`
	upgrade = "helm -n prod upgrade pushmesh deploy/helm/pushmesh -f values.yaml -f machine.yaml -f open.yaml --wait --timeout 30m"
)

// release is what is installed, and who uses it.
type release struct {
	*cluster
	router string // host:port
	pods   *watch
	crowd  *crowd
	// values of the upgrades so far
	set string
}

// door is where clients come in.
func door() string { return balancer + ":7400" }

// prepare gives the examples what a cluster has: a disk, and no more CPU than there is here.
func (r *release) prepare(ctx context.Context) error {
	for name, text := range map[string]string{"machine.yaml": machine, "open.yaml": open} {
		if _, err := r.file("work/"+name, text); err != nil {
			return err
		}
	}
	for name, change := range map[string][2]string{"postgres.yaml": {`cpu: "1"`, "cpu: 200m"}, "nats.yaml": {"cpu: 250m", "cpu: 50m"}} {
		path := filepath.Join("work", "deploy", "helm", "examples", name)
		text, err := os.ReadFile(filepath.Join(r.folder, path))
		if err != nil {
			return err
		}
		if strings.Count(string(text), change[0]) != 1 {
			return fmt.Errorf("%s does not ask for %s", path, change[0])
		}
		if _, err := r.file(path, strings.Replace(string(text), change[0], change[1], 1)); err != nil {
			return err
		}
	}
	disk := filepath.Join(r.folder, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		return err
	}
	if err := os.Chown(disk, 999, 999); err != nil {
		return err
	}
	volume, err := r.file("disk.yaml", fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
		"spec": {"capacity": {"storage": "60Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": %q}}}`, disk))
	if err != nil {
		return err
	}
	_, err = r.kubectl(ctx, "apply -f %s", volume)
	return err
}

// cloud gives the edges' Service its address, once there is one: helm waits for it.
func (r *release) cloud(ctx context.Context) error {
	return await(ctx, "the edges' Service has an address", func(ctx context.Context) error {
		_, err := r.kubectl(ctx, `patch service pushmesh-edge --subresource=status --type=merge -p '{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}'`, balancer)
		return err
	})
}

func (r *release) install(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	blocks, err := fromNothing()
	if err != nil {
		return err
	}
	installed := false
	for _, b := range blocks {
		switch b.language {
		case "yaml":
			if _, err := r.file("work/values.yaml", b.text); err != nil {
				return err
			}
		case "sh":
			script := strings.Replace(b.text, " -f values.yaml ", " -f values.yaml -f machine.yaml ", 1)
			cloud := make(chan error, 1)
			if changed := script != b.text; changed {
				installed = true
				go func() { cloud <- r.cloud(ctx) }()
			} else {
				cloud <- nil
			}
			at := time.Now()
			out, err := r.shell(ctx, script)
			if err := errors.Join(err, <-cloud); err != nil {
				return err
			}
			say("%.0f s: %s", time.Since(at).Seconds(), strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n          "))
			if strings.Contains(out, "would violate PodSecurity") {
				return fmt.Errorf("a pod is not confined:\n%s", out)
			}
		}
	}
	if !installed {
		return errors.New("the page has no command that installs from values.yaml")
	}
	router, err := r.kubectl(ctx, "get service pushmesh-router -o jsonpath={.spec.clusterIP}")
	if err != nil {
		return err
	}
	r.router = router + ":7401"
	return r.whole(ctx)
}

// whole waits until all of the release is there and serves. helm has waited until new pods are
// ready, not until they are for as long as they must be.
func (r *release) whole(ctx context.Context) error {
	for _, tier := range []string{"store", "compute", "router", "edge"} {
		if _, err := r.kubectl(ctx, "rollout status deployment/pushmesh-%s --timeout=5m", tier); err != nil {
			return err
		}
	}
	out, err := r.kubectl(ctx, `get deployments -o jsonpath='{range .items[*]}{.metadata.name}={.status.availableReplicas}{" "}{end}'`)
	if err != nil {
		return err
	}
	if want := "pushmesh-compute=1 pushmesh-edge=2 pushmesh-router=2 pushmesh-store=2"; out != want {
		return fmt.Errorf("available are %s, not %s", out, want)
	}
	return nil
}

// token is one that the backend of the page signs.
func token(secret []byte, user string, filters ...string) (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	claims, err := json.Marshal(map[string]any{"iss": "my-backend", "aud": "pushmesh", "sub": user, "exp": time.Now().Add(time.Hour).Unix(), "pm_sub": filters})
	if err != nil {
		return "", err
	}
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(claims)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil)), nil
}

// closed is the first message, through the Services, by who may; and who may not.
func (r *release) closed(ctx context.Context) error {
	secret, err := os.ReadFile(filepath.Join(r.folder, "work", "secret"))
	if err != nil {
		return err
	}
	jwt, err := token([]byte(strings.TrimSuffix(string(secret), "\n")), "ann", "room/+/chat")
	if err != nil {
		return err
	}
	if _, err := r.file("work/ann.jwt", jwt); err != nil {
		return err
	}
	r.env = append(r.env, "PUSHMESH_EDGE="+door(), "PUSHMESH_ROUTER="+r.router)
	for _, c := range []struct{ command, says string }{
		{"pushmesh sub room/1/chat --timeout 10s", "UNAUTHENTICATED"},
		{"pushmesh pub room/1/chat hello", "UNAUTHENTICATED"},
	} {
		if out, err := r.shell(ctx, c.command); err == nil || !strings.Contains(out, c.says) {
			return fmt.Errorf("%s: want a refusal that says %s, not %w", c.command, c.says, err)
		}
	}
	out, err := r.shell(ctx, `pushmesh pub room/1/chat hello --router-token-file shop.key >/dev/null
pushmesh sub room/1/chat --from earliest --count 1 --timeout 60s --token-file ann.jwt 2>/dev/null`)
	if err != nil {
		return err
	}
	if want := "room/1/chat\t1\thello\n"; out != want {
		return fmt.Errorf("what came is %q, not %q", out, want)
	}
	return nil
}

func (r *release) traffic(ctx context.Context) (err error) {
	if _, err := r.shell(ctx, upgrade); err != nil {
		return err
	}
	if err := r.whole(ctx); err != nil {
		return err
	}
	if err := await(ctx, "old edges are gone", func(ctx context.Context) error {
		names, err := r.names(ctx, "edge")
		if err == nil && len(names) != 2 {
			err = fmt.Errorf("there are %v", names)
		}
		return err
	}); err != nil {
		return err
	}
	if r.pods, err = r.look(ctx); err != nil {
		return err
	}
	r.crowd, err = r.gather(ctx)
	return err
}

// rolls upgrades the release with one more value, and checks that the pods of these tiers were
// replaced, and no others.
func (r *release) rolls(ctx context.Context, value string, tiers ...string) error {
	r.set += " --set " + value
	gone := map[string]int{}
	for _, tier := range tiers {
		out, err := r.kubectl(ctx, "get deployment pushmesh-%s -o jsonpath={.spec.replicas}", tier)
		if err != nil {
			return err
		}
		if gone[tier], err = strconv.Atoi(out); err != nil {
			return err
		}
	}
	mark, moved := r.pods.mark(), r.crowd.moved()
	at := time.Now()
	if _, err := r.shell(ctx, upgrade+r.set); err != nil {
		return err
	}
	say("rolled out in %.0f s", time.Since(at).Seconds())
	if err := r.pods.went(ctx, mark, gone); err != nil {
		return err
	}
	if err := errors.Join(r.whole(ctx), r.crowd.back(ctx)); err != nil {
		return err
	}
	// Each of them was at an old edge.
	if moved = r.crowd.moved() - moved; moved < subscribers {
		return fmt.Errorf("%d connections ended with GoAway, of %d subscribers", moved, subscribers)
	}
	return nil
}

// edges rolls out edges with the profile that lets io_uring through, and finds that they use it.
func (r *release) edges(ctx context.Context) error {
	if err := r.rolls(ctx, "edge.seccompLocalhostProfile=pushmesh.json", "edge"); err != nil {
		return err
	}
	addresses, err := r.kubectl(ctx, "get pods -l app.kubernetes.io/component=edge -o jsonpath={.items[*].status.podIP}")
	if err != nil {
		return err
	}
	for ip := range strings.FieldsSeq(addresses) {
		loops, err := metric(ctx, "http://"+ip+":7480/metrics", `pushmesh_edge_send_mode{mode="uring"}`)
		if err != nil || loops == 0 {
			return fmt.Errorf("the edge at %s does not send by io_uring: %w", ip, err)
		}
	}
	return nil
}

func (r *release) all(ctx context.Context) error {
	return r.rolls(ctx, "defaults.settings.log-level=warn", "edge", "router", "store", "compute")
}

// evict asks for both edges at once, as drains of two nodes would: the budget lets one go, and the
// other when the first one is replaced.
func (r *release) evict(ctx context.Context) error {
	mark := r.pods.mark()
	names, err := r.names(ctx, "edge")
	if err != nil {
		return err
	}
	if err := r.evicted(ctx, names[0]); err != nil {
		return err
	}
	if err := r.evicted(ctx, names[1]); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		return fmt.Errorf("a second edge: want a refusal for the budget, not %w", err)
	}
	if err := await(ctx, "the second edge may go", func(ctx context.Context) error { return r.evicted(ctx, names[1]) }); err != nil {
		return err
	}
	if err := r.pods.went(ctx, mark, map[string]int{"edge": 2}); err != nil {
		return err
	}
	return errors.Join(r.whole(ctx), r.crowd.back(ctx))
}

func (r *release) evicted(ctx context.Context, pod string) error {
	_, err := r.shell(ctx, fmt.Sprintf(`echo '{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": "prod"}}' |
	kubectl create --raw /api/v1/namespaces/prod/pods/%s/eviction -f -`, pod, pod))
	return err
}

// names of a tier's pods.
func (r *release) names(ctx context.Context, tier string) ([]string, error) {
	out, err := r.kubectl(ctx, "get pods -l app.kubernetes.io/component=%s -o jsonpath={.items[*].metadata.name}", tier)
	return strings.Fields(out), err
}

// kill ends one process of each tier with SIGKILL. Its container starts again in the same pod.
func (r *release) kill(ctx context.Context) error {
	for _, tier := range []string{"edge", "router", "store", "compute"} {
		names, err := r.names(ctx, tier)
		if err != nil {
			return err
		}
		pod := names[0]
		id, err := r.kubectl(ctx, "get pod %s -o jsonpath={.status.containerStatuses[0].containerID}", pod)
		if err != nil {
			return err
		}
		if tier == "edge" {
			r.crowd.killed(pod)
		}
		at := time.Now()
		if _, err := r.shell(ctx, "ctr tasks kill --signal SIGKILL "+strings.TrimPrefix(id, "containerd://")); err != nil {
			return err
		}
		if err := await(ctx, pod+" serves again", func(ctx context.Context) error {
			out, err := r.kubectl(ctx, "get pod %s -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}'", pod)
			if err == nil && out != "1 true" {
				err = fmt.Errorf("restarts and readiness are %s", out)
			}
			return err
		}); err != nil {
			return err
		}
		say("%s: ready again after %.1f s", pod, time.Since(at).Seconds())
	}
	return r.crowd.back(ctx)
}

func (r *release) judge(ctx context.Context) error {
	return r.crowd.judge(ctx)
}

func (r *release) uninstall(ctx context.Context) error {
	if _, err := r.shell(ctx, "helm -n prod uninstall pushmesh --wait --timeout 5m"); err != nil {
		return err
	}
	if _, err := r.kubectl(ctx, "wait --for=delete pods -l app.kubernetes.io/part-of=pushmesh --timeout=5m"); err != nil {
		return err
	}
	return r.pods.end()
}
