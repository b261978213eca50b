package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// each is every manifest of every file of values, and those of the examples.
func each(t *testing.T) map[string][]Object {
	t.Helper()
	h := open(t)
	all := map[string][]Object{}
	for _, file := range values(t) {
		objects, err := h.Template("--values", file)
		if err != nil {
			t.Fatal(file, err)
		}
		all[filepath.Base(file)] = objects
	}
	files, err := Examples()
	if err != nil || len(files) < 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all["examples/"+filepath.Base(file)], err = Objects(text); err != nil {
			t.Fatal(file, err)
		}
	}
	return all
}

func selects(selector, labels Object) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// A pod has every volume that its containers mount, and nothing that it need not have.
func TestPodsAreConfined(t *testing.T) {
	t.Parallel()
	pods := 0
	for file, all := range each(t) {
		for _, o := range all {
			pod := o.Pod()
			if pod == nil {
				continue
			}
			pods++
			at := fmt.Sprintf("%s: %s %s", file, o.Kind(), o.Name())
			if pod.At("spec", "automountServiceAccountToken") != false || pod.At("spec", "enableServiceLinks") != false {
				t.Errorf("%s has a token, or variables of Services", at)
			}
			if pod.At("spec", "securityContext", "runAsNonRoot") != true || pod.Text("spec", "securityContext", "seccompProfile", "type") == "" {
				t.Errorf("%s may be root, or has no seccomp profile", at)
			}
			volumes := map[string]bool{}
			for _, v := range pod.List("spec", "volumes") {
				if volumes[v.Text("name")] {
					t.Errorf("%s has two volumes %s", at, v.Text("name"))
				}
				volumes[v.Text("name")] = true
			}
			for _, v := range o.List("spec", "volumeClaimTemplates") {
				volumes[v.Text("metadata", "name")] = true
			}
			mounted := map[string]bool{}
			for _, c := range pod.List("spec", "containers") {
				if strings.HasPrefix(c.Text("image"), "proxy") { // of ci/everything.yaml
					continue
				}
				paths := map[string]bool{}
				for _, m := range c.List("volumeMounts") {
					if mounted[m.Text("name")] = true; !volumes[m.Text("name")] {
						t.Errorf("%s mounts %s, which it does not have", at, m.Text("name"))
					}
					if paths[m.Text("mountPath")] {
						t.Errorf("%s mounts two volumes at %s", at, m.Text("mountPath"))
					}
					paths[m.Text("mountPath")] = true
				}
				s := c.Map("securityContext")
				if s.At("readOnlyRootFilesystem") != true || s.At("allowPrivilegeEscalation") != false || s.At("capabilities", "drop", 0) != "ALL" {
					t.Errorf("%s: %s has %v", at, c.Text("name"), s)
				}
			}
			for v := range volumes {
				if !mounted[v] {
					t.Errorf("%s has %s, which it does not mount", at, v)
				}
			}
		}
	}
	if pods < 30 {
		t.Errorf("%d pods", pods)
	}
}

// Whatever selects pods selects some, and names a port that they have.
func TestSelectorsFindPods(t *testing.T) {
	t.Parallel()
	looked := map[string]int{}
	for file, all := range each(t) {
		for _, o := range all {
			at := fmt.Sprintf("%s: %s %s", file, o.Kind(), o.Name())
			var selector Object
			switch o.Kind() {
			case "Deployment", "StatefulSet", "PodDisruptionBudget":
				selector = o.Map("spec", "selector", "matchLabels")
			case "NetworkPolicy":
				selector = o.Map("spec", "podSelector", "matchLabels")
			case "Service":
				selector = o.Map("spec", "selector")
			case "ServiceMonitor":
				found := 0
				for _, s := range all {
					if s.Kind() == "Service" && selects(o.Map("spec", "selector", "matchLabels"), s.Map("metadata", "labels")) {
						found++
					}
				}
				if looked[o.Kind()]++; found != 1 {
					t.Errorf("%s finds %d Services", at, found)
				}
				continue
			default:
				continue
			}
			looked[o.Kind()]++
			found := 0
			for _, p := range all {
				if p.Kind() != "Deployment" && p.Kind() != "StatefulSet" || !selects(selector, p.Pod().Map("metadata", "labels")) {
					continue
				}
				found++
				var ports []string
				for _, port := range p.Pod().List("spec", "containers", 0, "ports") {
					ports = append(ports, port.Text("name"))
				}
				for _, port := range o.List("spec", "ports") {
					if name := port.Text("targetPort"); name != "" && !slices.Contains(ports, name) {
						t.Errorf("%s names the port %s, and there are %v", at, name, ports)
					}
				}
			}
			if found != 1 {
				t.Errorf("%s finds %d workloads", at, found)
			}
		}
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "Service", "ServiceMonitor"} {
		if looked[kind] == 0 {
			t.Errorf("no %s was looked at, only %v", kind, looked)
		}
	}
}

// A chart of a later version changes nothing of pods by itself: each edge that starts again sends
// all its clients on.
func TestAnotherVersionOfTheChartChangesNoPod(t *testing.T) {
	t.Parallel()
	h := open(t)
	later := filepath.Join(t.TempDir(), "pushmesh")
	if err := os.CopyFS(later, os.DirFS(Chart())); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(later, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "\nversion: 0.1.0\n", "\nversion: 9.9.9\n", 1)
	if changed == string(text) {
		t.Fatal("Chart.yaml has another version: change this test with it")
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := h.Run("template", "pushmesh", later, "--namespace", "prod", "--kube-version", Kubernetes, "--values", example("open"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Objects(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range render(t, h) {
		if o.Kind() != "Deployment" {
			continue
		}
		other := Find(after, "Deployment", o.Name())
		if before, now := fmt.Sprint(o.Pod()), fmt.Sprint(other.Pod()); before != now {
			t.Errorf("%s: %s\nand then %s", o.Name(), before, now)
		}
		if other.Text("metadata", "labels", "helm.sh/chart") != "pushmesh-9.9.9" {
			t.Error("the chart's version was not changed")
		}
	}
}

// A setting that changes starts the tier again, and no other one.
func TestChangedSettingsStartTheTierAgain(t *testing.T) {
	t.Parallel()
	h := open(t)
	sums := func(args ...string) map[string]string {
		m := map[string]string{}
		for _, o := range render(t, h, args...) {
			if o.Kind() == "Deployment" {
				m[o.Name()] = o.Pod().Text("metadata", "annotations", "checksum/settings")
			}
		}
		return m
	}
	before, after := sums(), sums("--set", "router.settings.consumers=7")
	maps.DeleteFunc(after, func(name, sum string) bool { return before[name] == sum })
	if len(before) != 4 || len(after) != 1 || after["pushmesh-router"] == "" {
		t.Errorf("of %v only %v", before, after)
	}
}

// What charts are asked for one by one is there on every tier.
func TestDoorsOfEveryTier(t *testing.T) {
	t.Parallel()
	h := open(t)
	all, err := h.Template("--values", example("everything"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []string{"edge", "router", "store", "compute"} {
		d := Find(all, "Deployment", "pushmesh-"+tier)
		pod := d.Pod()
		c := pod.List("spec", "containers")[0]
		for name, v := range map[string]any{
			"annotations":               d.At("metadata", "annotations", "example.org/a"),
			"podAnnotations":            pod.At("metadata", "annotations", "example.org/b"),
			"podLabels":                 pod.At("metadata", "labels", "example.org/c"),
			"nodeSelector":              pod.At("spec", "nodeSelector", "disk"),
			"tolerations":               pod.At("spec", "tolerations", 0, "operator"),
			"affinity":                  pod.At("spec", "affinity", "podAntiAffinity"),
			"topologySpreadConstraints": pod.At("spec", "topologySpreadConstraints", 0, "whenUnsatisfiable"),
			"priorityClassName":         pod.At("spec", "priorityClassName"),
			"runtimeClassName":          pod.At("spec", "runtimeClassName"),
			"schedulerName":             pod.At("spec", "schedulerName"),
			"dnsPolicy":                 pod.At("spec", "dnsPolicy"),
			"dnsConfig":                 pod.At("spec", "dnsConfig", "options", 0, "name"),
			"hostAliases":               pod.At("spec", "hostAliases", 0, "ip"),
			"podSecurityContext":        pod.At("spec", "securityContext", "sysctls", 0, "name"),
			"extraInitContainers":       pod.At("spec", "initContainers", 0, "name"),
			"extraContainers":           pod.At("spec", "containers", 1, "name"),
			"extraVolumes":              pod.List("spec", "volumes")[len(pod.List("spec", "volumes"))-1].Text("name"),
			"extraVolumeMounts":         c.List("volumeMounts")[len(c.List("volumeMounts"))-1].Text("mountPath"),
			"extraEnv":                  c.List("env")[len(c.List("env"))-1].Text("name"),
			"extraEnvFrom":              c.At("envFrom", 0, "secretRef", "name"),
			"extraArgs":                 c.At("args", 1),
			"rollingUpdate":             d.At("spec", "strategy", "rollingUpdate", "maxSurge"),
		} {
			want := map[string]any{
				"annotations": "1", "podAnnotations": "2", "podLabels": "3", "nodeSelector": "ssd", "tolerations": "Exists", "topologySpreadConstraints": "DoNotSchedule",
				"priorityClassName": "system-cluster-critical", "runtimeClassName": "gvisor", "schedulerName": "other", "dnsPolicy": "ClusterFirst", "dnsConfig": "ndots",
				"hostAliases": "192.0.2.1", "podSecurityContext": "net.ipv4.tcp_keepalive_time", "extraInitContainers": "wait", "extraContainers": "proxy",
				"extraVolumes": "scratch", "extraVolumeMounts": "/tmp", "extraEnv": "NODE", "extraEnvFrom": "more", "extraArgs": "--trace-ratio=0.5", "rollingUpdate": "25%",
			}[name]
			if v == nil || want != nil && v != want {
				t.Errorf("%s: %s is %v, want %v", tier, name, v, want)
			}
		}
		if pod.At("spec", "containers", 0, "readinessProbe", "periodSeconds") != 1 || pod.At("spec", "containers", 0, "readinessProbe", "failureThreshold") != 3 {
			t.Errorf("%s: a map that a user gives replaces the default's", tier)
		}
	}
	for name, want := range map[string]string{"edge": "pushmesh-edge", "router": "default", "store": "stores", "compute": "pushmesh-compute"} {
		if got := Find(all, "Deployment", "pushmesh-"+name).Pod().Text("spec", "serviceAccountName"); got != want {
			t.Errorf("%s runs as %s, want %s", name, got, want)
		}
		if made := Find(all, "ServiceAccount", want) != nil; made != (want == "pushmesh-"+name) {
			t.Errorf("%s: the account %s is made: %v", name, want, made)
		}
	}
	for _, name := range []string{"pushmesh-edge", "pushmesh-router"} {
		if Find(all, "Service", name).Text("metadata", "annotations", "example.org/d") != "4" {
			t.Errorf("the Service %s lacks its annotation", name)
		}
	}
	if Find(all, "Deployment", "pushmesh-store").At("spec", "template", "spec", "containers", 0, "lifecycle") != nil {
		t.Error("a store sleeps before its stop, for no time")
	}
	if image := Find(all, "Deployment", "pushmesh-edge").Pod().Text("spec", "containers", 0, "image"); image != "pushmesh/pushmesh:v0.1.1" {
		t.Errorf("an edge runs %s", image)
	}
	if Find(all, "PodDisruptionBudget", "pushmesh-edge") != nil || Find(all, "PodDisruptionBudget", "pushmesh-store").At("spec", "maxUnavailable") != "34%" {
		t.Error("budgets are not what was asked for")
	}
}

// The owner's password is in the schema's Job and nowhere else, and no environment has one.
func TestWhoReadsWhichSecret(t *testing.T) {
	t.Parallel()
	h := open(t)
	all, err := h.Template("--values", example("production"))
	if err != nil {
		t.Fatal(err)
	}
	readers := map[string][]string{}
	for _, o := range all {
		for _, v := range o.Pod().List("spec", "volumes") {
			if s := v.Text("secret", "secretName"); s != "" {
				readers[s] = append(readers[s], o.Name())
			}
		}
	}
	want := map[string][]string{
		"pushmesh-db": {"pushmesh-schema", "pushmesh-store"}, "pushmesh-db-owner": {"pushmesh-schema"}, "pushmesh-issuers": {"pushmesh-edge"},
		"pushmesh-backends": {"pushmesh-router"}, "pushmesh-public": {"pushmesh-edge", "pushmesh-router"}, "backends-ca": {"pushmesh-router"},
		"pushmesh-webhooks": {"pushmesh-store"}, "rebalance-client": {"pushmesh-rebalance"}, "public-ca": {"pushmesh-rebalance"},
		"pushmesh-edge-tier": {"pushmesh-edge"}, "pushmesh-router-tier": {"pushmesh-router"}, "pushmesh-store-tier": {"pushmesh-store"}, "pushmesh-compute-tier": {"pushmesh-compute"},
	}
	for s, names := range readers {
		slices.Sort(names)
		if !slices.Equal(names, want[s]) {
			t.Errorf("%s is read by %v, want %v", s, names, want[s])
		}
	}
	if len(readers) != len(want) {
		t.Errorf("%d secrets are read, want %d: %v", len(readers), len(want), readers)
	}
	for _, tier := range []string{"edge", "router", "store", "compute"} {
		c := Find(all, "Certificate", "pushmesh-"+tier+"-tier")
		if c.At("spec", "dnsNames", 0) != tier+".pushmesh.internal" || c.Text("spec", "secretName") != "pushmesh-"+tier+"-tier" {
			t.Errorf("the certificate of %s is %v", tier, c)
		}
	}
}
