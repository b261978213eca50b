package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/internal/settings"
	compute "github.com/pushmesh/pushmesh/services/compute/command"
	edge "github.com/pushmesh/pushmesh/services/edge/command"
	router "github.com/pushmesh/pushmesh/services/router/command"
	store "github.com/pushmesh/pushmesh/services/store/command"
)

func open(t *testing.T) Helm {
	t.Helper()
	h, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func values(t *testing.T) []string {
	t.Helper()
	files, err := Values()
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files of values, %v", len(files), err)
	}
	return files
}

func example(name string) string { return filepath.Join(Chart(), "ci", name+".yaml") }

// render is the chart with the smallest values and some more.
func render(t *testing.T, h Helm, args ...string) []Object {
	t.Helper()
	all, err := h.Template(append([]string{"--values", example("open")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLint(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, file := range values(t) {
		if err := h.Lint(file); err != nil {
			t.Error(file, err)
		}
	}
}

// What the chart writes for a tier is what the tier's own command takes, and each value arrives.
func TestTiersTakeTheirSettings(t *testing.T) {
	h := open(t)
	explain := map[string]func([]string) ([]settings.Line, error){"edge": edge.Explain, "router": router.Explain, "store": store.Explain, "compute": compute.Explain}
	seen := map[string]int{}
	for _, file := range values(t) {
		all, err := h.Template("--values", file)
		if err != nil {
			t.Fatal(file, err)
		}
		for _, o := range all {
			if o.Kind() != "Deployment" {
				continue
			}
			tier := o.Text("metadata", "labels", "app.kubernetes.io/component")
			text := Find(all, "ConfigMap", o.Name()).Text("data", tier+".yaml")
			path, url := filepath.Join(t.TempDir(), tier+".yaml"), filepath.Join(t.TempDir(), "url")
			if err := os.WriteFile(url, []byte("postgres://pushmesh_store@db/pushmesh\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"url", "DATABASE_URL"} {
				// the one file that is read
				text = strings.Replace(text, `"/etc/pushmesh/db/`+key+`"`, url, 1)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--config=" + path}
			for _, e := range o.Pod().List("spec", "containers", 0, "env") {
				// as the kubelet has them
				name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(e.Text("name"), "PUSHMESH_"), "_", "-"))
				value := strings.ReplaceAll(e.Text("value"), "$(POD_IP)", "192.0.2.7")
				if strings.HasPrefix(value, "[") {
					value = strings.ReplaceAll(value, "192.0.2.7", "2001:db8::7")
				}
				if e.Text("valueFrom", "fieldRef", "fieldPath") == "metadata.name" {
					value = o.Name() + "-7d9f5c6b8-x2x7k"
				}
				if strings.HasPrefix(e.Text("name"), "PUSHMESH_") {
					args = append(args, "--"+name+"="+value)
				}
			}
			lines, err := explain[tier](args)
			if err != nil {
				t.Errorf("%s: %s: %v\n%s", filepath.Base(file), tier, err, text)
			}
			var wrote map[string]any
			if err := yaml.Unmarshal([]byte(text), &wrote); err != nil {
				t.Fatal(err)
			}
			for name := range wrote {
				if !slices.ContainsFunc(lines, func(l settings.Line) bool { return l.Name == name && l.From != "default" }) {
					t.Errorf("%s: %s does not take --%s", filepath.Base(file), tier, name)
				}
			}
			seen[tier]++
		}
	}
	if seen["edge"] < 6 || seen["router"] < 6 || seen["store"] < 6 || seen["compute"] < 5 {
		t.Errorf("files looked at: %v", seen)
	}
}

// The schema's Job says all that store --migrate-only needs: no certificate, no NATS.
func TestTheSchemaJobSaysEnough(t *testing.T) {
	h := open(t)
	all, err := h.Template("--values", example("production"))
	if err != nil {
		t.Fatal(err)
	}
	c := Find(all, "Job", "pushmesh-schema").Pod().List("spec", "containers")[0]
	url := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(url, []byte("postgres://pushmesh@db/pushmesh"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, e := range c.List("env") {
		set[e.Text("name")] = e.Text("value")
		if strings.HasPrefix(e.Text("value"), "/etc/pushmesh/db") {
			t.Setenv(e.Text("name"), url)
		} else {
			t.Setenv(e.Text("name"), e.Text("value"))
		}
	}
	if set["PUSHMESH_DB_FILE"] != "/etc/pushmesh/db/url" || set["PUSHMESH_DB_OWNER_FILE"] != "/etc/pushmesh/db-owner/url" || set["PUSHMESH_MESH"] != "prod" {
		t.Errorf("it is told %v", set)
	}
	var args []string
	for _, a := range c.At("command").([]any)[2:] {
		args = append(args, a.(string))
	}
	if _, err := store.Explain(args); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

// A large number of a values file is a float to Helm, which prints those as 5.36870912e+08.
func TestNumbersStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	h := open(t)
	all, err := h.Template("--values", example("production"))
	if err != nil {
		t.Fatal(err)
	}
	text := Find(all, "ConfigMap", "pushmesh-edge").Text("data", "edge.yaml")
	for _, want := range []string{"queue-memory: 536870912\n", "trace-ratio: 0.001\n", "drain-pace: 1000\n", `shed-lag: "250ms"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	rule := Find(all, "PrometheusRule", "pushmesh")
	for _, r := range rule.List("spec", "groups", 0, "rules") {
		if r.Text("alert") == "PushmeshEdgeMemory" && r.Text("expr") != "pushmesh_edge_queue_memory_used_bytes > 0.8 * 536870912" {
			t.Errorf("the alert of memory is %q", r.Text("expr"))
		}
	}
	if n := len(rule.List("spec", "groups", 0, "rules")); n != 10 {
		t.Errorf("%d alerts", n)
	}
}

// The chart's alerts are those that docs/operations.md explains.
func TestAlertsAreTheSame(t *testing.T) {
	t.Parallel()
	ours, err := os.ReadFile(filepath.Join(Chart(), "files", "pushmesh.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(Root(), "deploy", "prometheus", "pushmesh.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, theirs) {
		t.Error("deploy/helm/pushmesh/files/pushmesh.rules.yaml is not deploy/prometheus/pushmesh.rules.yaml: copy it")
	}
}

// Times of a planned stop, by hand from docs/operations.md: connections / pace, 2.5 s, and time for
// slow clients; four thirds of that; preStop before, and 10 s after.
func TestComputedTimes(t *testing.T) {
	t.Parallel()
	h := open(t)
	for name, c := range map[string]struct {
		set                       string
		drain, grace, termination int
	}{
		"defaults":              {"", 23, 31, 46},
		"of the sizing example": {"edge.drain.connections=18182,edge.drain.slowSeconds=4", 25, 34, 49},
		"a whole second":        {"edge.drain.connections=10000,edge.drain.slowSeconds=5", 18, 24, 39},
		"slow":                  {"edge.drain.connections=100000,edge.drain.pace=500", 208, 278, 293},
		"few":                   {"edge.drain.connections=1,edge.drain.slowSeconds=0", 3, 4, 19},
		"drain by hand":         {"edge.drain.seconds=60", 60, 80, 95},
		"both by hand":          {"edge.drain.seconds=25,edge.drain.graceSeconds=30", 25, 30, 45},
		"all by hand":           {"edge.drain.seconds=25,edge.drain.graceSeconds=30,edge.terminationGracePeriodSeconds=300", 25, 30, 300},
		"no sleep before":       {"edge.preStopSeconds=0", 23, 31, 41},
		"a sleep for all tiers": {"defaults.preStopSeconds=20", 23, 31, 61},
	} {
		all := render(t, h, "--set", c.set)
		text := Find(all, "ConfigMap", "pushmesh-edge").Text("data", "edge.yaml")
		pod := Find(all, "Deployment", "pushmesh-edge").Pod()
		want := fmt.Sprintf("drain: \"%ds\"\n", c.drain)
		if !strings.Contains(text, want) || !strings.Contains(text, fmt.Sprintf("grace: \"%ds\"\n", c.grace)) || pod.At("spec", "terminationGracePeriodSeconds") != c.termination {
			t.Errorf("%s: %v s for all, want %d, %d and %d:\n%s", name, pod.At("spec", "terminationGracePeriodSeconds"), c.drain, c.grace, c.termination, text)
		}
	}
	// The next edge goes when the one before has sent its clients on, or many would move twice.
	for set, want := range map[string]int{"": 28, "edge.drain.seconds=60,edge.preStopSeconds=20": 80, "edge.minReadySeconds=3": 3, "defaults.minReadySeconds=9": 28} {
		d := Find(render(t, h, "--set", set), "Deployment", "pushmesh-edge")
		if d.At("spec", "minReadySeconds") != want {
			t.Errorf("%q: an edge counts after %v s, want %d", set, d.At("spec", "minReadySeconds"), want)
		}
	}
	long := Find(render(t, h, "--set", "edge.drain.connections=1000000,edge.drain.limitSeconds=3600"), "Deployment", "pushmesh-edge")
	if ready, deadline := long.At("spec", "minReadySeconds"), long.At("spec", "progressDeadlineSeconds"); ready != 1013 || deadline != 1613 {
		t.Errorf("%v s, and a rollout fails after %v", ready, deadline)
	}
	for _, tier := range []string{"router", "store", "compute"} {
		all := render(t, h, "--set", tier+".graceSeconds=40,"+tier+".preStopSeconds=7")
		pod := Find(all, "Deployment", "pushmesh-"+tier).Pod()
		if pod.At("spec", "terminationGracePeriodSeconds") != 57 || pod.At("spec", "containers", 0, "lifecycle", "preStop", "sleep", "seconds") != 7 {
			t.Errorf("%s: %v", tier, pod.At("spec", "terminationGracePeriodSeconds"))
		}
	}
}

func TestAutoscaler(t *testing.T) {
	t.Parallel()
	h := open(t)
	all := render(t, h, "--set", "edge.hpa.enabled=true")
	if r := Find(all, "Deployment", "pushmesh-edge").At("spec", "replicas"); r != nil {
		t.Errorf("the Deployment has %v replicas, which an upgrade would go back to", r)
	}
	hpa := Find(all, "HorizontalPodAutoscaler", "pushmesh-edge")
	if got := hpa.Text("spec", "metrics", 0, "pods", "target", "averageValue"); got != "10500" {
		t.Errorf("aims at %s connections, want 70 %% of 15000", got)
	}
	if hpa.At("spec", "behavior", "scaleDown", "policies", 0, "value") != 1 || hpa.At("spec", "behavior", "scaleDown", "stabilizationWindowSeconds") != 3600 {
		t.Errorf("scales down by %v", hpa.Map("spec", "behavior", "scaleDown"))
	}
	all = render(t, h, "--set", "edge.hpa.enabled=true,edge.hpa.metricType=External,edge.hpa.targetConnections=9000,edge.hpa.metricSelector.mesh=prod")
	metric := Find(all, "HorizontalPodAutoscaler", "pushmesh-edge").Map("spec", "metrics", 0, "external")
	if metric.Text("target", "averageValue") != "9000" || metric.Text("metric", "selector", "matchLabels", "mesh") != "prod" {
		t.Errorf("the metric is %v", metric)
	}
}

func TestMemoryLimitOfGo(t *testing.T) {
	t.Parallel()
	h := open(t)
	for limit, want := range map[string]int64{"2Gi": 2 << 30 * 8 / 10, "512Mi": 512 << 20 * 8 / 10, "1.5Gi": 3 << 29 * 8 / 10, "1G": 800_000_000, "100000000": 80_000_000} {
		all := render(t, h, "--set-string", "edge.resources.limits.memory="+limit)
		got := ""
		for _, e := range Find(all, "Deployment", "pushmesh-edge").Pod().List("spec", "containers", 0, "env") {
			if e.Text("name") == "GOMEMLIMIT" {
				got = e.Text("value")
			}
		}
		if got != strconv.FormatInt(want, 10) {
			t.Errorf("%s: GOMEMLIMIT is %s, want %d", limit, got, want)
		}
	}
	for _, set := range []string{"edge.goMemLimitPercent=0", "edge.resources.limits=null"} {
		for _, e := range Find(render(t, h, "--set", set), "Deployment", "pushmesh-edge").Pod().List("spec", "containers", 0, "env") {
			if e.Text("name") == "GOMEMLIMIT" {
				t.Errorf("%s: GOMEMLIMIT is set", set)
			}
		}
	}
}

// Every object of the schema that is ours has no room for a name that is none of ours.
func TestTheSchemaIsStrict(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(Chart(), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	looked := 0
	var look func(at string, v any)
	look = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, ours := v["properties"].(map[string]any); ours && v["type"] == "object" {
				if looked++; v["additionalProperties"] != false {
					t.Errorf("%s takes any name", at)
				}
			}
			for k, inner := range v {
				look(at+"/"+k, inner)
			}
		case []any:
			for _, inner := range v {
				look(at, inner)
			}
		}
	}
	look("", schema)
	if looked < 30 {
		t.Errorf("%d objects", looked)
	}
}

// Each value of the chart is explained in its README.
func TestTheReadmeHasEveryValue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(Chart(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(Chart(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for name, v := range all {
		names := []string{name}
		if m, ok := v.(map[string]any); ok {
			for inner := range m {
				names = append(names, inner)
			}
		}
		for _, n := range names {
			if !bytes.Contains(readme, []byte("`"+n+"`")) && !bytes.Contains(readme, []byte("."+n+"`")) && !bytes.Contains(readme, []byte("`"+n+".")) {
				t.Errorf("README.md lacks %s of %s", n, name)
			}
		}
	}
}
