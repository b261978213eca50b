package helm

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// addresses are those that an object's pod dials within the release.
func addresses(t *testing.T, all []Object, o Object) []string {
	t.Helper()
	var found []string
	if o.Kind() == "Deployment" {
		var file map[string]any
		tier := o.Text("metadata", "labels", "app.kubernetes.io/component")
		if err := yaml.Unmarshal([]byte(Find(all, "ConfigMap", o.Name()).Text("data", tier+".yaml")), &file); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"stores", "computes"} {
			list, _ := file[name].([]any)
			for _, a := range list {
				found = append(found, a.(string))
			}
		}
	}
	for _, c := range o.Pod().List("spec", "containers") {
		for _, e := range c.List("env") {
			if e.Text("name") == "PUSHMESH_ROUTER" {
				found = append(found, e.Text("value"))
			}
		}
		command, _ := c.At("command").([]any)
		for _, a := range command {
			if u, err := url.Parse(a.(string)); err == nil && u.Host != "" {
				found = append(found, u.Host)
			}
		}
	}
	return found
}

// Whatever is dialled within a release is a port of one of its Services.
func TestAddressesAreThoseOfServices(t *testing.T) {
	t.Parallel()
	looked := 0
	for file, all := range each(t) {
		for _, o := range all {
			for _, address := range addresses(t, all, o) {
				looked++
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					t.Errorf("%s: %s %s dials %s: %v", file, o.Kind(), o.Name(), address, err)
					continue
				}
				n, _ := strconv.Atoi(port)
				s := Find(all, "Service", host)
				if !slices.ContainsFunc(s.List("spec", "ports"), func(p Object) bool { return p.At("port") == n }) {
					t.Errorf("%s: %s %s dials %s, which no Service serves", file, o.Kind(), o.Name(), address)
				}
			}
		}
	}
	if looked < 35 {
		t.Errorf("%d addresses", looked)
	}
}

// fits reports whether a selector of labels takes a pod.
func fits(selector, labels Object) bool {
	for k, v := range selector.Map("matchLabels") {
		if labels[k] != v {
			return false
		}
	}
	for _, e := range selector.List("matchExpressions") {
		values, _ := e.At("values").([]any)
		if e.Text("operator") != "In" || !slices.Contains(values, labels[e.Text("key")]) {
			return false
		}
	}
	return true
}

// lets reports whether a policy lets a pod of its own namespace reach a port.
func lets(policy, from Object, port int) bool {
	for _, rule := range policy.List("spec", "ingress") {
		if !slices.ContainsFunc(rule.List("ports"), func(p Object) bool { return p.At("port") == port }) {
			continue
		}
		peers := rule.List("from")
		if len(peers) == 0 || slices.ContainsFunc(peers, func(p Object) bool {
			return p.Map("podSelector") != nil && p.Map("namespaceSelector") == nil && fits(p.Map("podSelector"), from)
		}) {
			return true
		}
	}
	return false
}

// Policies let through what tiers need, and nothing beside it.
func TestWhoReachesWhom(t *testing.T) {
	t.Parallel()
	everything := each(t)
	nats, postgres := everything["examples/nats.yaml"], everything["examples/postgres.yaml"]
	for _, file := range []string{"open.yaml", "production.yaml"} {
		all := everything[file]
		pods := map[string]Object{
			"stranger": {"app": "shop"}, "operator": {"pushmesh.dev/operator": "true"}, "nats": Find(nats, "StatefulSet", "nats").Pod().Map("metadata", "labels"),
		}
		for _, o := range all {
			if pod := o.Pod(); pod != nil {
				labels := pod.Map("metadata", "labels")
				pods[labels.Text("app.kubernetes.io/component")] = labels
			}
		}
		guarded := file == "production.yaml" // who may subscribe and publish is said there
		for _, c := range []struct {
			to     Object
			port   int
			from   string // of all: may
			others string // may not
		}{
			{Find(all, "NetworkPolicy", "pushmesh-store"), 7403, "edge router store compute operator", "stranger schema nats test"},
			{Find(all, "NetworkPolicy", "pushmesh-compute"), 7402, "edge router operator", "stranger store schema nats compute"},
			{Find(all, "NetworkPolicy", "pushmesh-edge"), 7400, "router operator", map[bool]string{true: "stranger store"}[guarded]},
			{Find(all, "NetworkPolicy", "pushmesh-router"), 7401, "operator", map[bool]string{true: "stranger store edge"}[guarded]},
			{Find(all, "NetworkPolicy", "pushmesh-router"), 7481, "test operator stranger", ""},
			{Find(nats, "NetworkPolicy", "nats"), 4222, "edge router store", "compute stranger schema operator"},
			{Find(nats, "NetworkPolicy", "nats"), 6222, "nats", "edge router store compute stranger"},
			{Find(postgres, "NetworkPolicy", "postgres"), 5432, "store schema", "edge router compute stranger operator nats"},
		} {
			for who, want := range map[string]bool{c.from: true, c.others: false} {
				for name := range strings.FieldsSeq(who) {
					if pods[name] == nil {
						t.Fatalf("%s: no pod %s", file, name)
					}
					if got := lets(c.to, pods[name], c.port); got != want {
						t.Errorf("%s: %s reaches %s:%d: %t", file, name, c.to.Name(), c.port, got)
					}
				}
			}
		}
		if guarded && !lets(Find(all, "NetworkPolicy", "pushmesh-router"), pods["rebalance"], 7401) {
			t.Error("rebalance does not reach a router")
		}
	}
	// a NodePort or a balancer brings clients from addresses, not from pods
	rule := fmt.Sprint(Find(everything["production.yaml"], "NetworkPolicy", "pushmesh-edge").At("spec", "ingress", 0, "from"))
	if !strings.Contains(rule, "10.0.0.0/8") {
		t.Errorf("subscribersFrom of %s is not in %s", filepath.Base(example("production")), rule)
	}
}
