package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func hours(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Hour) }

// there is a mesh with something of each kind.
func there() *mesh {
	m := &mesh{namespaces: map[string]*pushmeshv1.Namespace{}, models: map[string][]*pushmeshv1.Model{}, teams: map[string]*pushmeshv1.Team{}, members: map[string][]string{}}
	for i, ns := range []*pushmeshv1.Namespace{
		{Prefix: "default", Builtin: true, Policy: &pushmeshv1.Policy{}},
		{Prefix: "orders", Policy: &pushmeshv1.Policy{Durable: true, Retention: hours(48)}},
		{Prefix: "news", Policy: &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks", Version: 1}}}},
		{Prefix: "old", Policy: &pushmeshv1.Policy{Durable: true}},
	} {
		ns.Version = uint64(i + 1)
		m.namespaces[ns.GetPrefix()] = ns
	}
	m.models["clicks"] = []*pushmeshv1.Model{{Name: "clicks", Version: 2, Digest: []byte("two"), Columns: []string{"a"}}, {Name: "clicks", Version: 1, Digest: []byte("one")}}
	m.models["spare"] = []*pushmeshv1.Model{{Name: "spare", Version: 1, Digest: []byte("x")}}
	m.teams["editors"] = &pushmeshv1.Team{Name: "editors", Subscribe: []string{"doc/#"}, Version: 7}
	m.teams["past"] = &pushmeshv1.Team{Name: "past", Version: 8}
	m.members["editors"] = []string{"ann", "bob"}
	m.entries = []backends.Entry{
		{Name: "orders", Roles: []string{"publisher:orders/#"}, Keys: []backends.Key{{ID: "0011223344556677", SHA256: strings.Repeat("ab", 32), Expires: backends.Stamp{Time: now}}}},
		{Name: "gone", Roles: []string{"auditor"}, Certificates: []string{"gone.example"}},
	}
	return m
}

func parsed(t *testing.T, text string, prune ...string) *wanted {
	t.Helper()
	f, faults := meshfile.Parse([]byte(text))
	if len(faults) > 0 {
		t.Fatal(strictyaml.Join("f", faults))
	}
	w := &wanted{file: f, now: now, prune: map[string]bool{}, models: map[string]loaded{"clicks": {path: "c.txt", size: 3, digest: []byte("two"), columns: []string{"a"}}, "fresh": {path: "f.txt", size: 5, digest: []byte("f")}}}
	for _, kind := range prune {
		w.prune[kind] = true
	}
	return w
}

func shown(t *testing.T, p *plan) string {
	t.Helper()
	var b strings.Builder
	if err := strictyaml.Join("f", p.faults); err != nil {
		fmt.Fprintln(&b, err)
	}
	if err := show(&b, p.changes); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.changes {
		if c.loses != "" {
			fmt.Fprintln(&b, "!", c.loses)
		}
	}
	return b.String()
}

func TestPlans(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		prune []string
		want  string
	}{
		"nothing": {"namespaces: {orders: {durable: true, retention: 2d}}\nmodels: {clicks: {file: c.txt}}\nteams: {editors: {subscribe: [doc/#], members: [bob, ann]}, past: {}}\n" +
			"backends: {gone: {roles: [auditor], certificates: [gone.example]}}\n", nil, "0 to add, 0 to change, 0 to delete\n"},
		"new": {
			"backends: {b: {roles: [auditor], key: true, key_expires: 90d}}\nteams: {t: {members: [ann]}}\nnamespaces: {n: {}}\nmodels: {fresh: {file: f.txt}}\n", nil,
			"+ model fresh\n    + version: a new one of 5 bytes, from f.txt\n+ namespace n\n+ team t\n    + members: ann\n+ backend b\n    + roles: auditor\n    + key: a new one, which ends after 2160h\n4 to add, 0 to change, 0 to delete\n",
		},
		"changed": {
			"namespaces: {orders: {durable: true, retention: 1d, overflow: conflate}, old: {}, default: {durable: true}}\nteams: {editors: {publish: [x], members: [carl, ann]}, past: {}}\nbackends: {orders: {roles: ['publisher:orders/#'], key: true}}\n", nil,
			"~ namespace orders\n    ~ retention: 48h -> 24h\n    + overflow: conflate\n~ namespace old\n    - durable: true\n~ namespace default\n    + durable: true\n" +
				"~ team editors\n    - subscribe: doc/#\n    + publish: x\n    + members: carl\n    - members: bob\n~ backend orders\n    + key: a new one, which never ends\n0 to add, 5 to change, 0 to delete\n" +
				"! messages in namespace orders go after 24h, and no longer after 48h\n! namespace old is durable, and becomes ephemeral: its messages are no longer stored\n",
		},
		"unmanaged": {"teams: {editors: {subscribe: [doc/#]}}\n", nil, "0 to add, 0 to change, 0 to delete\n"},
		"pruned": {
			"namespaces: {news: {}}\nmodels: {}\nteams: {editors: {subscribe: [doc/#]}}\nbackends: {gone: {roles: [auditor], certificates: [gone.example]}}\n", meshfile.Kinds,
			"- model clicks\n- model spare\n~ namespace news\n    - rank.model.name: clicks\n    - rank.model.version: 1\n- namespace old\n- namespace orders\n- team past\n- backend orders\n0 to add, 1 to change, 6 to delete\n" +
				"! model clicks is deleted with its files, 2 versions\n! model spare is deleted with its files, 1 versions\n! namespace old is deleted, which is durable: its topics get the policy of the next shorter prefix\n" +
				"! namespace orders is deleted, which is durable: its topics get the policy of the next shorter prefix\n! team past is deleted with its memberships: what it grants ends\n" +
				"! backend orders is taken out of the backends file with its 1 keys\n",
		},
		"a model that is used": {"models: {}\n", []string{meshfile.Models}, "f: --prune models: model clicks is not in the file, but namespace news uses it\n- model clicks\n- model spare\n0 to add, 0 to change, 2 to delete\n" +
			"! model clicks is deleted with its files, 2 versions\n! model spare is deleted with its files, 1 versions\n"},
		"models that are not there": {
			"namespaces:\n  a: {rank: {model: {name: none}}}\n  b: {rank: {model: {name: clicks, version: 2, next_version: 3}}}\n  c: {rank: {model: {name: clicks}}}\n  d: {rank: {model: {name: fresh, version: 9}}}\nmodels: {fresh: {file: f.txt}}\n", nil,
			"f:2: namespaces.a: there is no model none, version 0, neither in the mesh nor in the file (0: any)\nf:3: namespaces.b: there is no model clicks, version 3, neither in the mesh nor in the file (0: any)\n" +
				"+ model fresh\n    + version: a new one of 5 bytes, from f.txt\n+ namespace a\n    + rank.model.name: none\n+ namespace b\n    + rank.model.name: clicks\n    + rank.model.version: 2\n    + rank.model.next_version: 3\n" +
				"+ namespace c\n    + rank.model.name: clicks\n+ namespace d\n    + rank.model.name: fresh\n    + rank.model.version: 9\n5 to add, 0 to change, 0 to delete\n",
		},
		"a certificate of another backend": {
			"backends:\n  new: {certificates: [gone.example]}\n", nil,
			"f:2: the backends file would have a fault: backend new: certificate \"gone.example\" is another backend's as well\n+ backend new\n    + certificates: gone.example\n1 to add, 0 to change, 0 to delete\n",
		},
	} {
		if got := shown(t, parsed(t, c.text, c.prune...).plan(there())); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// Whoever ends keep LAST, by what is in the file or by what is not, is told what that deletes.
func TestWhatIsKeptGoes(t *testing.T) {
	const says = "topics of namespace state keep their last messages, and these are deleted\n"
	for name, c := range map[string]struct {
		text  string
		prune []string
		want  string
	}{
		"kept on":          {"namespaces: {state: {durable: true, keep: last, retention: 3d}}\n", nil, ""},
		"ended":            {"namespaces: {state: {durable: true}}\n", nil, "! " + says},
		"ended below":      {"namespaces: {state/a: {durable: true}}\n", nil, "! topics of namespace state/a, which is below state, keep their last messages, and these are deleted\n"},
		"nothing is named": {"namespaces: {}\n", nil, ""},
		"pruned": {
			"namespaces: {orders: {durable: true, retention: 2d}, news: {rank: {model: {name: clicks, version: 1}}}, old: {durable: true}}\n",
			[]string{meshfile.Namespaces},
			"! namespace state is deleted, which is durable: its topics get the policy of the next shorter prefix, and what they keep is deleted unless that has keep LAST, too\n",
		},
	} {
		m := there()
		m.namespaces["state"] = &pushmeshv1.Namespace{Prefix: "state", Version: 9, Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST}}
		got := shown(t, parsed(t, c.text, c.prune...).plan(m))
		_, losses, _ := strings.Cut(got, " to delete\n")
		if losses != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, losses, c.want)
		}
	}
}

// What this program, or the store, does not know whole is not written over.
func TestPoliciesOfNewerVersionsStay(t *testing.T) {
	m := there()
	m.namespaces["old"].NotUnderstood = "a new rule"
	newer := &pushmeshv1.ClaimPolicy{}
	newer.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	m.namespaces["orders"].Policy.Claims = newer
	p := parsed(t, "namespaces: {old: {}, orders: {}}\n").plan(m)
	if err := strictyaml.Join("f", p.faults); err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "a new rule") || !strings.Contains(err.Error(), "does not know") {
		t.Error(err)
	}
	if _, err := m.file(now); err == nil {
		t.Error("it is exported")
	}
}

// Steps come in the order in which things need one another, and an error ends them; what has no
// room before members are removed has another try after that.
func TestStepsComeInOrder(t *testing.T) {
	var done []string
	fails := map[string]error{}
	at := func(phase int, name string) step {
		return step{phase, name + "!", func(context.Context, *writer) error {
			done = append(done, name)
			err := fails[name]
			delete(fails, name)
			return err
		}}
	}
	changes := []change{
		{steps: []step{at(deleteModels, "delete model")}},
		{steps: []step{at(putTeams, "team"), at(addMembers, "add"), at(removeMembers, "remove")}},
		{steps: []step{at(putNamespaces, "namespace")}},
		{steps: []step{at(putModels, "model")}},
		{steps: []step{at(deleteNamespaces, "delete namespace")}},
	}
	run := func() (string, error) {
		done = nil
		var out strings.Builder
		err := (&writer{stdio: cmdline.IO{Out: &out}}).do(t.Context(), changes)
		return out.String(), err
	}
	all := []string{"model", "namespace", "team", "add", "remove", "delete namespace", "delete model"}
	if out, err := run(); err != nil || !slices.Equal(done, all) || out != strings.Join(all, "!\n")+"!\n" {
		t.Error(done, out, err)
	}
	fails["add"] = code.New(wirev1.Code_CODE_OVERLOADED, "full")
	if _, err := run(); err != nil || !slices.Equal(done, append(slices.Clone(all), "add")) {
		t.Error(done, err)
	}
	fails["team"] = errors.New("no")
	if out, err := run(); err == nil || len(done) != 3 || out != "model!\nnamespace!\n" {
		t.Error(done, out, err)
	}
}

// A call names as many users as it may, and no more bytes.
func TestCallsNameUsersInPieces(t *testing.T) {
	long := strings.Repeat("x", 180)
	for name, users := range map[string][]string{"short": make([]string, 2500), "long": make([]string, 1000), "none": nil} {
		for i := range users {
			users[i] = fmt.Sprint(i)
			if name == "long" {
				users[i] += long
			}
		}
		pieces := calls(users)
		if want := map[string]int{"short": 3, "long": 3, "none": 0}[name]; len(pieces) != want || !slices.Equal(slices.Concat(pieces...), users) {
			t.Errorf("%s: %d pieces", name, len(pieces))
		}
	}
}

// What is built in and as it comes is not exported.
func TestExportLeavesOutWhatIsBuiltIn(t *testing.T) {
	m := there()
	f, err := m.file(now)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Namespaces) != 3 || len(f.Teams) != 2 || len(f.Backends) != 2 || f.Backends[0].Key || !strings.Contains(m.notes(), "model clicks is 2") {
		t.Errorf("%+v %s", f, m.notes())
	}
	m.namespaces["default"].Policy = proto.CloneOf(m.namespaces["old"].Policy)
	if f, err := m.file(now); err != nil || len(f.Namespaces) != 4 {
		t.Errorf("%+v, %v", f, err)
	}
}

// others is a mesh whose namespaces somebody else changes meanwhile, and otherTeams its teams.
type others struct {
	pushmeshv1.NamespaceServiceClient
	put int
}

type otherTeams struct {
	pushmeshv1.MembershipServiceClient
	put int
}

func (*others) Get(_ context.Context, req *pushmeshv1.NamespaceServiceGetRequest, _ ...grpc.CallOption) (*pushmeshv1.NamespaceServiceGetResponse, error) {
	if req.GetPrefix() == "gone" {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "there is none")
	}
	return &pushmeshv1.NamespaceServiceGetResponse{Namespace: &pushmeshv1.Namespace{Prefix: req.GetPrefix(), Version: 9}}, nil
}

func (o *others) Put(context.Context, *pushmeshv1.NamespaceServicePutRequest, ...grpc.CallOption) (*pushmeshv1.NamespaceServicePutResponse, error) {
	o.put++
	return &pushmeshv1.NamespaceServicePutResponse{}, nil
}

func (*otherTeams) ListTeams(context.Context, *pushmeshv1.ListTeamsRequest, ...grpc.CallOption) (*pushmeshv1.ListTeamsResponse, error) {
	return &pushmeshv1.ListTeamsResponse{Teams: []*pushmeshv1.Team{{Name: "editors", Version: 9}, {Name: "crew", Version: 3}}}, nil
}

func (o *otherTeams) PutTeam(context.Context, *pushmeshv1.PutTeamRequest, ...grpc.CallOption) (*pushmeshv1.PutTeamResponse, error) {
	o.put++
	return &pushmeshv1.PutTeamResponse{}, nil
}

// What somebody else has changed since it was read is not written over.
func TestChangesOfOthersStay(t *testing.T) {
	o, teams := &others{}, &otherTeams{}
	w := &writer{apis: &apis{namespaces: o, teams: teams}, read: &mesh{teams: map[string]*pushmeshv1.Team{"editors": {Version: 8}, "crew": {Version: 3}}}}
	for what, err := range map[string]error{
		"put":        w.putNamespace(t.Context(), &pushmeshv1.Namespace{Prefix: "orders"}, 8),
		"made":       w.putNamespace(t.Context(), &pushmeshv1.Namespace{Prefix: "orders"}, 0),
		"made, gone": w.putNamespace(t.Context(), &pushmeshv1.Namespace{Prefix: "gone"}, 8),
		"deleted":    w.deleteNamespace(t.Context(), "orders", 8),
		"team":       w.putTeam(t.Context(), &pushmeshv1.Team{Name: "editors"}),
	} {
		if !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if o.put+teams.put != 0 {
		t.Errorf("%d were put", o.put+teams.put)
	}
	for _, err := range []error{
		w.putNamespace(t.Context(), &pushmeshv1.Namespace{Prefix: "orders"}, 9), w.putNamespace(t.Context(), &pushmeshv1.Namespace{Prefix: "gone"}, 0),
		w.putTeam(t.Context(), &pushmeshv1.Team{Name: "crew"}), w.putTeam(t.Context(), &pushmeshv1.Team{Name: "new"}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if o.put != 2 || teams.put != 2 {
		t.Errorf("%d and %d were put", o.put, teams.put)
	}
}

// A new namespace whose topics were durable by a shorter prefix loses their messages, which is
// asked for; one that is as durable does not.
func TestANewPrefixThatTakesDurabilityAwayIsAskedFor(t *testing.T) {
	for text, asked := range map[string]bool{
		"namespaces: {orders/eu: {max_payload: 1000}}":                      true,
		"namespaces: {orders/eu/west: {durable: true, retention: 1h}}":      true,
		"namespaces: {orders/eu: {durable: true, retention: 48h}}":          false,
		"namespaces: {ordersx: {max_payload: 1000}, more: {durable: true}}": false,
	} {
		p := parsed(t, text).plan(there())
		if len(p.changes) == 0 || len(p.faults) > 0 || (p.changes[0].loses != "") != asked {
			t.Errorf("%s: %+v %v", text, p.changes, p.faults)
		}
	}
}

// Teams with fields of a newer version stay as they are.
func TestTeamsOfNewerVersionsStay(t *testing.T) {
	m := there()
	m.teams["editors"].ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	if p := parsed(t, "teams: {editors: {subscribe: [x]}}").plan(m); len(p.faults) != 1 || len(p.changes) != 0 {
		t.Errorf("%v %v", p.faults, p.changes)
	}
}

// A key that can't be made leaves its place free, and that there is no room for one is found before
// the first change.
func TestAKeyThatCantBeMadeLeavesItsPlaceFree(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "backends.yaml")
	if err := os.WriteFile(path, []byte("backends: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &writer{stdio: cmdline.IO{Out: io.Discard}, backends: path, keys: dir}
	if err := w.makeKey(&meshfile.Backend{Entry: backends.Entry{Name: "a"}, Key: true}); err == nil {
		t.Fatal("a key of a backend that is not there is made")
	}
	if _, err := os.Lstat(w.keyFile("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its file is left (%v): every later run is refused", err)
	}
	m := there()
	m.entries = []backends.Entry{{Name: "b", Roles: []string{"auditor"}}}
	for i := range 64 {
		m.entries[0].Keys = append(m.entries[0].Keys, backends.Key{ID: fmt.Sprintf("%016x", 1000+i), SHA256: strings.Repeat("ab", 32), Expires: backends.Stamp{Time: now.Add(-time.Hour)}})
	}
	if p := parsed(t, "backends: {b: {roles: [auditor], key: true}}").plan(m); len(p.faults) == 0 {
		t.Error("the 65th key is planned")
	}
	m.entries[0].Keys = m.entries[0].Keys[:63]
	if p := parsed(t, "backends: {b: {roles: [auditor], key: true}}").plan(m); len(p.faults) != 0 || len(m.entries[0].Keys) != 63 {
		t.Errorf("the 64th is not planned: %v", p.faults)
	}
}
