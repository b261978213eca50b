// Package meshid distinguishes one mesh from another: by a name that operators choose, and by an id
// that the mesh's first database was given.
//
// A store reads both from its database. All other processes learn them once from the stores that
// they are configured with, and from then on a store of any other mesh is an error. The name and
// the id are in every NATS subject (package bus) and in every call between tiers.
package meshid

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
)

// DefaultName is the name of a mesh whose first store was started without --mesh.
const DefaultName = "main"

// Mesh is one mesh. Its id is unique; names are for people, and for permissions of NATS.
type Mesh struct{ Name, ID string }

func (m Mesh) String() string { return fmt.Sprintf("mesh %s (id %s)", m.Name, m.ID) }

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	idPattern   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// CheckName reports what is wrong with a mesh's name. It has to be a token of NATS subjects.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("mesh name %q: must be 1 to 64 of A-Z a-z 0-9 _ -", name)
	}
	return nil
}

// CheckSetting is CheckName for --mesh, which may be empty.
func CheckSetting(name string) error {
	if name == "" {
		return nil
	}
	return CheckName(name)
}

// Check reports what is wrong with a mesh's name and id.
func (m Mesh) Check() error {
	if m == (Mesh{}) {
		return errors.New("the caller names no mesh: its program is older than mesh ids")
	}
	if !idPattern.MatchString(m.ID) {
		return fmt.Errorf("mesh id %q: must be a UUID in lower case", m.ID)
	}
	return CheckName(m.Name)
}

// Identity is the mesh that a process belongs to. It is safe for concurrent use.
type Identity struct {
	wanted string
	known  chan struct{} // closed once mesh is set
	mu     sync.Mutex
	mesh   Mesh
}

// New makes an identity that is learned later. If wanted is not empty, a mesh of another name is
// refused.
func New(wanted string) *Identity { return &Identity{wanted: wanted, known: make(chan struct{})} }

// Learn makes m the process's mesh, if it has none yet. If it has another one, the error names
// both.
func (i *Identity) Learn(m Mesh) error {
	if err := m.Check(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.compare(m); err != nil || i.mesh == m {
		return err
	}
	i.mesh = m
	close(i.known)
	return nil
}

// Compare reports why m can't be the process's mesh. Before the mesh is known only a wanted name is
// compared.
func (i *Identity) Compare(m Mesh) error {
	if err := m.Check(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.compare(m)
}

func (i *Identity) compare(m Mesh) error {
	switch {
	case i.mesh != (Mesh{}) && i.mesh != m:
		return fmt.Errorf("it belongs to %s, this process to %s: check its address, and restart the processes that were given another database", m, i.mesh)
	case i.wanted != "" && i.wanted != m.Name:
		return fmt.Errorf("it belongs to %s, and this process was started with --mesh %s: name that mesh in --mesh, or other stores in --stores", m, i.wanted)
	}
	return nil
}

// Mesh returns the mesh that was learned; false: none yet.
func (i *Identity) Mesh() (Mesh, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mesh, i.mesh != (Mesh{})
}

// Known is closed once the mesh is known.
func (i *Identity) Known() <-chan struct{} { return i.known }

// Fixed is the identity of a process that knows its mesh from the start.
func Fixed(m Mesh) *Identity {
	i := New("")
	if err := i.Learn(m); err != nil {
		panic(err) // of a constant
	}
	return i
}

// NewID makes a mesh id that nobody else has.
func NewID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])      // it never fails
	id[6] = id[6]&0x0f | 4<<4    // version 4: random
	id[8] = id[8]&0x3f | 0b10<<6 // the variant of RFC 9562
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
