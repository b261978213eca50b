package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
)

// The example's configuration and that of the mesh, mounted into one folder, are one that a server
// loads.
func TestTheNATSExampleIsLoaded(t *testing.T) {
	t.Parallel()
	server, err := Tool("nats-server")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", "helm", "examples", "nats.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Objects(text)
	if err != nil {
		t.Fatal(err)
	}
	permissions, err := os.ReadFile(filepath.Join(Root(), "deploy", "nats", "pushmesh.conf"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(time.Now().Add(time.Hour), "nats.pushmesh.internal", "nats-0.nats")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{
		"cluster.conf": []byte(Find(objects, "ConfigMap", "nats-cluster").Text("data", "cluster.conf")), "pushmesh.conf": permissions,
		"tls.crt": cert, "tls.key": key, "ca.crt": authority.PEM(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(server, "-t", "--config", filepath.Join(folder, "cluster.conf"))
	for _, e := range Find(objects, "StatefulSet", "nats").Pod().List("spec", "containers", 0, "env") {
		if value := e.Text("value"); value != "" {
			command.Env = append(command.Env, e.Text("name")+"="+filepath.Join(folder, filepath.Base(value)))
		}
	}
	if out, err := command.CombinedOutput(); err != nil || len(command.Env) != 3 {
		t.Errorf("with %v: %v\n%s", command.Env, err, out)
	}
}
