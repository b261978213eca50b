package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/helm"
)

const (
	patience  = 3 * time.Minute // until the server serves, on a machine that does much else
	namespace = "prod"
)

// server is a kube-apiserver with an etcd of its own, on loopback, with files in a scratch folder.
type server struct {
	folder, base, token string
	client              *http.Client
	// in the order in which they were started
	processes []*exec.Cmd
}

func port() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, p, err := net.SplitHostPort(l.Addr().String())
	return p, err
}

// run starts a program whose output goes into a file.
func (s *server) run(name string, args ...string) error {
	path, err := helm.Tool(name)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.folder, name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr, command.Dir = log, log, s.folder
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, command)
	return nil
}

func start(ctx context.Context) (_ *server, err error) {
	s := &server{client: &http.Client{
		Timeout: time.Minute,
		// The server makes its certificate itself, and has no other one to show.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // on loopback, in a test
	}}
	if s.folder, err = os.MkdirTemp("", "pushmesh-kube"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.tail(), s.stop())
		}
	}()
	var ports [3]string
	for i := range ports {
		if ports[i], err = port(); err != nil {
			return nil, err
		}
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails
	s.token, s.base = hex.EncodeToString(secret), "https://127.0.0.1:"+ports[2]
	tokens := filepath.Join(s.folder, "tokens")
	if err := os.WriteFile(tokens, []byte(s.token+",admin,1,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	etcd := "http://127.0.0.1:" + ports[0]
	if err := s.run("etcd", "--data-dir", filepath.Join(s.folder, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+ports[1], "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return nil, err
	}
	key := filepath.Join(s.folder, "accounts.key")
	if out, err := exec.CommandContext(ctx, "openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("openssl: %w: %s", err, out)
	}
	if err := s.run("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", ports[2], "--cert-dir", filepath.Join(s.folder, "certs"),
		"--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16,fd00:96::/108",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", key, "--service-account-key-file", key,
		// These ask for objects that only a cluster in use has: accounts, and classes that values
		// name.
		"--disable-admission-plugins", "ServiceAccount,Priority,RuntimeClass", "--v", "0"); err != nil {
		return nil, err
	}
	return s, s.ready(ctx)
}

func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		_, _, err := s.ask(ctx, http.MethodGet, "/readyz", nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready after %v: %w", patience, err)
		case <-look.C:
		}
	}
}

// tail is the end of the logs, for whoever wonders why.
func (s *server) tail() error {
	var all []error
	for _, p := range s.processes {
		name := filepath.Base(p.Path)
		text, err := os.ReadFile(filepath.Join(s.folder, name+".log"))
		all = append(all, err, fmt.Errorf("%s said:\n%s", name, text[max(len(text)-2000, 0):]))
	}
	return errors.Join(all...)
}

// stop ends the processes, the last one first, and removes their files.
func (s *server) stop() error {
	for i := len(s.processes) - 1; i >= 0; i-- {
		_ = s.processes[i].Process.Kill() // it may have ended, and keeps nothing
		_ = s.processes[i].Wait()
	}
	return os.RemoveAll(s.folder)
}

// ask sends one request; an answer that is none of 2xx is an error.
func (s *server) ask(ctx context.Context, method, path string, body []byte) (answer []byte, warnings []string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return nil, nil, err
	}
	if response.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(answer, &status) != nil {
			status.Message = string(answer)
		}
		return nil, nil, fmt.Errorf("%s: %s", response.Status, status.Message)
	}
	return answer, response.Header.Values("Warning"), nil
}

// resources are the paths of what the chart makes.
var resources = map[string]string{
	"v1 Namespace": "namespaces", "v1 ConfigMap": "configmaps", "v1 Service": "services", "v1 ServiceAccount": "serviceaccounts", "v1 Pod": "pods",
	"apps/v1 Deployment": "deployments", "apps/v1 StatefulSet": "statefulsets", "batch/v1 Job": "jobs", "batch/v1 CronJob": "cronjobs",
	"policy/v1 PodDisruptionBudget": "poddisruptionbudgets", "autoscaling/v2 HorizontalPodAutoscaler": "horizontalpodautoscalers",
	"networking.k8s.io/v1 NetworkPolicy": "networkpolicies", "apiextensions.k8s.io/v1 CustomResourceDefinition": "customresourcedefinitions",
	"cert-manager.io/v1 Certificate": "certificates", "monitoring.coreos.com/v1 ServiceMonitor": "servicemonitors", "monitoring.coreos.com/v1 PrometheusRule": "prometheusrules",
}

// apply has the server look at an object, and keep it unless dry.
func (s *server) apply(ctx context.Context, o helm.Object, dry bool) (warnings []string, err error) {
	version := o.Text("apiVersion")
	resource := resources[version+" "+o.Kind()]
	if resource == "" {
		return nil, fmt.Errorf("%s %s is not known here", version, o.Kind())
	}
	path := "/apis/" + version
	if version == "v1" {
		path = "/api/v1"
	}
	switch o.Kind() {
	case "Namespace", "CustomResourceDefinition":
	default:
		path += "/namespaces/" + namespace
	}
	query := url.Values{"fieldManager": {"dryrun"}, "fieldValidation": {"Strict"}, "force": {"true"}}
	if dry {
		query.Set("dryRun", "All")
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	_, warnings, err = s.ask(ctx, http.MethodPatch, path+"/"+resource+"/"+url.PathEscape(o.Name())+"?"+query.Encode(), body)
	return warnings, err
}

// prepare makes the namespace, whose pods are held to the restricted profile, and the kinds that
// others' operators bring. Of these the server knows the names alone, not what is in them.
func (s *server) prepare(ctx context.Context) error {
	profile := "pod-security.kubernetes.io/"
	_, err := s.apply(ctx, helm.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": namespace, "labels": map[string]any{profile + "warn": "restricted", profile + "warn-version": "latest"},
	}}, false)
	if err != nil {
		return err
	}
	for _, c := range [][3]string{
		{"cert-manager.io", "certificates", "Certificate"},
		{"monitoring.coreos.com", "servicemonitors", "ServiceMonitor"},
		{"monitoring.coreos.com", "prometheusrules", "PrometheusRule"},
	} {
		group, plural, kind := c[0], c[1], c[2]
		_, err := s.apply(ctx, helm.Object{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			},
		}, false)
		if err != nil {
			return err
		}
		if err := s.serves(ctx, "/apis/"+group+"/v1/namespaces/"+namespace+"/"+plural); err != nil {
			return err
		}
	}
	return nil
}

// serves waits until a new kind can be asked for.
func (s *server) serves(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		_, _, err := s.ask(ctx, http.MethodGet, path, nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-look.C:
		}
	}
}
