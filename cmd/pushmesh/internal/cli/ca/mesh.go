package ca

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// server is the word for a certificate of a server that is no node of the mesh.
const server = "server"

// Mesh is the command pushmesh ca mesh.
type Mesh struct {
	Dir   string   `arg:"" placeholder:"DIR" help:"Folder: the CA is in its folder ca, and each node's files are in a folder of its id."`
	Node  []string `arg:"" placeholder:"TIER=ID[@HOST,HOST]" help:"Nodes, such as store=store-1 or nats=nats@nats-1,nats-2, and servers that are no node, such as server=postgres; these are reached by their id where no host is named."`
	Owner string   `placeholder:"UID:GID" help:"Whose the nodes' files become; needs the rights of root."`
	Days  int      `default:"365" help:"How long new certificates are good. Those with less than a third of that left are made anew."`
}

// Run makes what is missing.
func (c *Mesh) Run(stdio cmdline.IO) error {
	if err := c.run(stdio); err != nil {
		return fmt.Errorf("ca mesh: %w", err)
	}
	return nil
}

func (c *Mesh) run(stdio cmdline.IO) error {
	uid, gid := -1, -1
	if c.Owner != "" {
		if n, err := fmt.Sscanf(c.Owner, "%d:%d", &uid, &gid); n != 2 || err != nil {
			return cmdline.Usage("--owner %q must be UID:GID, two numbers", c.Owner)
		}
	}
	nodes, err := c.nodes()
	if err != nil {
		return err
	}
	folder := filepath.Join(c.Dir, "ca")
	authority, err := tierauth.OpenCA(folder)
	if errors.Is(err, os.ErrNotExist) {
		authority, err = tierauth.NewCA(folder, false)
	}
	if err != nil {
		return err
	}
	trusted, err := os.ReadFile(filepath.Join(folder, tierauth.CACert))
	if err != nil {
		return err
	}
	for _, w := range nodes {
		at := filepath.Join(c.Dir, w.ID)
		file := filepath.Join(at, w.Name())
		if !tierauth.Lasts(file+".pem", file+".key", filepath.Join(folder, tierauth.CACert), w) {
			if err := authority.Issue(w, at, true); err != nil {
				return err
			}
			fmt.Fprintln(stdio.Out, file+".pem")
		}
		ca := filepath.Join(at, tierauth.CACert)
		if known, err := os.ReadFile(ca); err != nil || !bytes.Equal(known, trusted) {
			if err := os.WriteFile(ca, trusted, 0o600); err != nil {
				return err
			}
		}
		if c.Owner == "" {
			continue
		}
		for _, name := range []string{at, file + ".pem", file + ".key", ca} {
			if err := os.Chown(name, uid, gid); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Mesh) nodes() (all []tierauth.Wanted, err error) {
	for _, node := range c.Node {
		tier, name, ok := strings.Cut(node, "=")
		if !ok || tier != server && !slices.Contains(tierauth.Tiers(), tierauth.Tier(tier)) {
			return nil, cmdline.Usage("%q must be TIER=ID or TIER=ID@HOST,HOST, and TIER one of %v or %s", node, tierauth.Tiers(), server)
		}
		id, hosts, named := strings.Cut(name, "@")
		w := tierauth.Wanted{Tier: tierauth.Tier(tier), ID: id, Days: c.Days}
		if named {
			w.Hosts = strings.Split(hosts, ",")
		}
		if tier == server {
			w.Tier, w.Server = "", true
			if !named {
				w.Hosts = []string{id}
			}
		}
		if slices.Contains(w.Hosts, "") {
			return nil, cmdline.Usage("%q: a host has no name", node)
		}
		if err := w.Check(); err != nil {
			return nil, cmdline.Usage("%s: %w", node, err)
		}
		if !fileName(id) || id == "ca" {
			return nil, cmdline.Usage("%q can't be the name of a folder: choose another one", id)
		}
		if slices.ContainsFunc(all, func(other tierauth.Wanted) bool { return other.ID == id }) {
			return nil, cmdline.Usage("two nodes are called %q, and would have the same files: give each an id of its own", id)
		}
		all = append(all, w)
	}
	return all, nil
}
