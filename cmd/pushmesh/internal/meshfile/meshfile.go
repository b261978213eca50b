// Package meshfile reads files that say what a mesh shall have: models, namespaces, teams and
// backends. It finds every fault that can be found without the mesh.
package meshfile

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/protoyaml"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// MaxFile is how large a file may be, in bytes: the most memberships that a mesh has go into it.
const MaxFile = 16 << 20

// Kinds of what a file declares: the names of its sections.
const (
	Models     = "models"
	Namespaces = "namespaces"
	Teams      = "teams"
	Backends   = "backends"
)

// Kinds is all of them, in the order in which one may need another that is before it.
var Kinds = []string{Models, Namespaces, Teams, Backends}

// File is what one says. Each list is in its order.
type File struct {
	// Sections that are there, with something in them or not.
	Sections   map[string]bool
	Models     []Model
	Namespaces []Namespace
	Teams      []Team
	Backends   []Backend
}

// Model is the newest version that a model shall have.
type Model struct {
	Line int
	Name string
	// Path is that of the file; one that is not absolute begins at the folder of the mesh's file.
	Path    string
	Format  pushmeshv1.ModelFormat
	Columns []string
	Comment string
}

// Namespace is a policy as a whole: what the file leaves out has its default.
type Namespace struct {
	Line      int
	Namespace *pushmeshv1.Namespace
}

// Team is what a team grants as a whole.
type Team struct {
	Line int
	Team *pushmeshv1.Team
	// Members are all that it has; Managed is false where the file does not say who that is.
	Members []string
	Managed bool
}

// Backend is an entry of the routers' backends file as a whole, but for its keys.
type Backend struct {
	Line  int
	Entry backends.Entry
	// Key asks for one that has not ended; one that is made ends after KeyExpires, 0: never.
	Key        bool
	KeyExpires time.Duration
}

// Parse reads a file. Its faults are in the order in which they were found.
func Parse(data []byte) (*File, []strictyaml.Fault) {
	f := &File{Sections: map[string]bool{}}
	root, faults := strictyaml.Document(data)
	r := &protoyaml.Reader{Faults: faults}
	if root == nil {
		return f, r.Faults
	}
	sections := map[string]func(at string, of strictyaml.Field){
		Models:     func(at string, of strictyaml.Field) { f.Models = append(f.Models, model(r, at, of)) },
		Namespaces: func(at string, of strictyaml.Field) { f.Namespaces = append(f.Namespaces, namespace(r, at, of)) },
		Teams:      func(at string, of strictyaml.Field) { f.Teams = append(f.Teams, team(r, at, of)) },
		Backends:   func(at string, of strictyaml.Field) { f.Backends = append(f.Backends, backend(r, at, of)) },
	}
	for _, section := range r.Fields("the file", root) {
		read := sections[section.Name]
		if read == nil {
			r.Fault(section.Line, "there is no section %.60q%s; there are %s", section.Name, strictyaml.Near(section.Name, Kinds), strings.Join(Kinds, ", "))
			continue
		}
		if section.Value.Kind == yaml.ScalarNode && section.Value.Tag == "!!null" {
			// a file that was cut off deletes nothing
			r.Fault(section.Line, "%s has nothing below it: leave it out, or write %s: {} where there shall be none", section.Name, section.Name)
			continue
		}
		f.Sections[section.Name] = true
		for _, one := range r.Fields(section.Name, section.Value) {
			read(section.Name+"."+one.Name, one)
		}
	}
	f.check(r)
	return f, r.Faults
}

// Write is a file that says the same, without models.
func (f *File) Write() ([]byte, error) {
	root := protoyaml.Map()
	if f.Sections[Namespaces] {
		section := protoyaml.Map()
		for _, n := range f.Namespaces {
			protoyaml.Set(section, n.Namespace.GetPrefix(), protoyaml.Node(n.Namespace.GetPolicy()))
		}
		protoyaml.Set(root, Namespaces, section)
	}
	if f.Sections[Teams] {
		section := protoyaml.Map()
		for _, t := range f.Teams {
			protoyaml.Set(section, t.Team.GetName(), t.Node())
		}
		protoyaml.Set(root, Teams, section)
	}
	if f.Sections[Backends] {
		section := protoyaml.Map()
		for _, b := range f.Backends {
			n := EntryNode(b.Entry)
			if b.Key {
				protoyaml.Set(n, "key", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
			}
			protoyaml.Set(section, b.Entry.Name, n)
		}
		protoyaml.Set(root, Backends, section)
	}
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("write the file: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write the file: %w", err)
	}
	return []byte(out.String()), nil
}
