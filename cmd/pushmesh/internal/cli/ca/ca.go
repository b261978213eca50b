// Package ca has the commands that make certificates for a mesh.
package ca

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Command is the command pushmesh ca.
type Command struct {
	Init   Init   `cmd:"" help:"Make a CA: a key and a certificate that sign those of the mesh."`
	Issue  Issue  `cmd:"" help:"Make the certificate of a node, a public port or a backend."`
	Revoke Revoke `cmd:"" help:"Put certificates on the list of those that nobody may use any more."`
	Mesh   Mesh   `cmd:"" help:"Make what is missing of a CA and of the certificates of several nodes, for containers."`
}

// Init is the command pushmesh ca init.
type Init struct {
	Dir   string `arg:"" placeholder:"DIR" help:"Folder for ca.pem and ca.key."`
	Force bool   `help:"Replace a CA that is there: what it has signed is taken by nobody any more who knows only the new one."`
}

// Run makes a CA.
func (c *Init) Run(stdio cmdline.IO) error {
	if _, err := tierauth.NewCA(c.Dir, c.Force); err != nil {
		return fmt.Errorf("ca init: %w", err)
	}
	_, err := fmt.Fprintf(stdio.Out, "%s is for all nodes (--mesh-ca); whoever has %s can be any of them\n", filepath.Join(c.Dir, tierauth.CACert), filepath.Join(c.Dir, tierauth.CAKey))
	return err
}

// Issue is the command pushmesh ca issue.
type Issue struct {
	Dir    string   `arg:"" placeholder:"DIR" help:"Folder of the CA."`
	Tier   string   `enum:",store,compute,router,edge,nats,operator" default:"" placeholder:"TIER" help:"For a node of this tier: store, compute, router, edge or nats; or for an operator's command line."`
	ID     string   `name:"id" placeholder:"ID" help:"Name of the node, of --tier."`
	Server bool     `help:"For the public port of an edge or a router (--tls-cert)."`
	Client string   `placeholder:"NAME" help:"For a backend of this name, at routers with --tls-client-ca."`
	Host   []string `placeholder:"NAME" help:"Names and addresses by which a server is reached, separated by commas. Tiers know each other without; NATS servers need their own for other clients and for their cluster."`
	Days   int      `default:"365" help:"How long the certificate is good."`
	Out    string   `placeholder:"DIR" help:"Folder for the files; default: the CA's."`
	Force  bool     `help:"Replace files that are there."`
}

// Help of the command.
func (Issue) Help() string {
	return `Makes NAME.pem and NAME.key, whose mode is 0600: ID, the name of the backend, or the first --host.

  pushmesh ca init ca
  pushmesh ca issue ca --tier store --id store-1 --out store-1
  pushmesh ca issue ca --tier nats --id nats --host nats,127.0.0.1 --out nats
  pushmesh ca issue ca --server --host edge.example.org
  pushmesh ca issue ca --client billing --days 30`
}

// Run makes a certificate.
func (c *Issue) Run(stdio cmdline.IO) error {
	w := tierauth.Wanted{Tier: tierauth.Tier(c.Tier), ID: c.ID, Server: c.Server, Client: c.Client, Hosts: c.Host, Days: c.Days}
	cert, key, err := c.make(w)
	if err != nil {
		return fmt.Errorf("ca issue: %w", err)
	}
	_, err = fmt.Fprintln(stdio.Out, cert, key)
	return err
}

func (c *Issue) make(w tierauth.Wanted) (cert, key string, err error) {
	if err := w.Check(); err != nil {
		return "", "", cmdline.Usage("%w", err)
	}
	name := w.Name()
	if !fileName(name) || name+".pem" == tierauth.CACert {
		return "", "", cmdline.Usage("%q can't be the name of a file: choose another one", name)
	}
	authority, err := tierauth.OpenCA(c.Dir)
	if err != nil {
		return "", "", err
	}
	folder := c.Out
	if folder == "" {
		folder = c.Dir
	}
	cert, key = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	return cert, key, authority.Issue(w, folder, c.Force)
}

// fileName reports whether a file can be called so.
func fileName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}
