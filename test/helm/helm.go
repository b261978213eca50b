// Package helm renders the chart of deploy/helm as a user's helm does. Its tests look at what comes
// of values; dryrun shows it to a Kubernetes API server.
package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Kubernetes is the version for which charts are rendered, and of the server that sees them.
const Kubernetes = "1.36.3"

// Root is the folder of the repository, in which this one works or below which.
var Root = sync.OnceValue(func() string {
	folder, err := os.Getwd()
	for ; err == nil && folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.work")); err == nil {
			return folder
		}
	}
	return "."
})

// Chart is the chart's folder.
func Chart() string { return filepath.Join(Root(), "deploy", "helm", "pushmesh") }

// Values are the files of values that must work.
func Values() ([]string, error) {
	return filepath.Glob(filepath.Join(Chart(), "ci", "*.yaml"))
}

// Examples are manifests of what the chart needs beside it.
func Examples() ([]string, error) {
	return filepath.Glob(filepath.Join(Root(), "deploy", "helm", "examples", "*.yaml"))
}

// Tool is the path of a pinned tool, built where the cache lacks it.
func Tool(name string) (string, error) {
	command := exec.Command(filepath.Join(Root(), "scripts", "tool"), name)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/tool %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Helm is a helm binary.
type Helm struct{ path string }

// Open finds or builds helm.
func Open() (Helm, error) {
	path, err := Tool("helm")
	return Helm{path}, err
}

// Run is helm with arguments, and returns what it prints.
func (h Helm) Run(args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	command := exec.Command(h.path, args...)
	command.Stdout, command.Stderr = &out, &complaint
	// Nothing of the host's: no plugins, no repositories, no cluster.
	command.Env = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s%s", args[0], err, &complaint, &out)
	}
	return out.Bytes(), nil
}

// Lint finds faults of the chart with values.
func (h Helm) Lint(values string) error {
	_, err := h.Run("lint", "--strict", "--quiet", "--kube-version", Kubernetes, "--values", values, Chart())
	return err
}

// Template renders the release pushmesh in the namespace prod; args are further flags.
func (h Helm) Template(args ...string) ([]Object, error) {
	out, err := h.Run(slices.Concat([]string{"template", "pushmesh", Chart(), "--namespace", "prod", "--kube-version", Kubernetes}, args)...)
	if err != nil {
		return nil, err
	}
	return Objects(out)
}

// Object is one manifest.
type Object map[string]any

// Objects are the manifests of a file.
func Objects(text []byte) ([]Object, error) {
	var all []Object
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o Object
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// At is the value at a path of keys, and of indices of lists; nil where there is none.
func (o Object) At(path ...any) any {
	var v any = map[string]any(o)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			switch m := v.(type) {
			case map[string]any:
				v = m[step]
			case Object:
				v = m[step]
			default:
				return nil
			}
		case int:
			list, ok := v.([]any)
			if !ok || step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// Text is the string at a path, empty where there is none.
func (o Object) Text(path ...any) string {
	s, _ := o.At(path...).(string)
	return s
}

// List is the list of objects at a path.
func (o Object) List(path ...any) []Object {
	list, _ := o.At(path...).([]any)
	objects := make([]Object, 0, len(list))
	for _, v := range list {
		switch m := v.(type) {
		case map[string]any:
			objects = append(objects, m)
		case Object:
			objects = append(objects, m)
		}
	}
	return objects
}

// Map is the map at a path.
func (o Object) Map(path ...any) Object {
	switch m := o.At(path...).(type) {
	case map[string]any:
		return m
	case Object:
		return m
	}
	return nil
}

// Kind is the object's kind, and Name its name.
func (o Object) Kind() string { return o.Text("kind") }

// Name is the object's name.
func (o Object) Name() string { return o.Text("metadata", "name") }

// Pod is the pod that an object is or makes, with its metadata; nil where it makes none.
func (o Object) Pod() Object {
	switch o.Kind() {
	case "Pod":
		return o
	case "Deployment", "StatefulSet", "DaemonSet", "Job":
		return o.Map("spec", "template")
	case "CronJob":
		return o.Map("spec", "jobTemplate", "spec", "template")
	}
	return nil
}

// Find is the object of a kind and name; nil where there is none.
func Find(all []Object, kind, name string) Object {
	for _, o := range all {
		if o.Kind() == kind && o.Name() == name {
			return o
		}
	}
	return nil
}
