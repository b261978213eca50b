package ranking

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type Model struct {
	Put      modelPut      `cmd:"" help:"Store a model file as the next version of a model."`
	List     modelList     `cmd:"" help:"Show the stored versions, and the namespaces that use them."`
	Delete   modelDelete   `cmd:"" help:"Delete a version that no namespace uses."`
	Rollback modelRollback `cmd:"" help:"Remove the next version of a model from the policies of all namespaces."`
}

func (Model) Help() string {
	return `Models of gradient-boosted trees score candidates: LightGBM's text files, XGBoost's binary and JSON files. Each version of a name
is a file that never changes.

  pushmesh model put clicks model.txt --comment 'trained on October'
  pushmesh model list
  pushmesh rank docs.txt --model clicks@3 --prefix Column_
  pushmesh namespace put news --rank rank.json           # {"model": {"name": "clicks", "version": 3, "next_version": 4, "next_share": 0.1}}
  pushmesh model rollback clicks
  pushmesh model delete clicks@4`
}

type modelList struct {
	Name string `arg:"" optional:"" help:"Only this model; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (modelList) Help() string {
	return `The newest version of each name comes first.

  pushmesh model list
  pushmesh model list clicks --format json | jq .columns`
}

// Run prints the versions.
func (c *modelList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withModels(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.RankServiceClient) error {
		answer, err := api.ListModels(ctx, &pushmeshv1.ListModelsRequest{Name: c.Name})
		if err != nil {
			return err
		}
		return printModels(stdio.Out, c.FormatFlag, answer.GetModels()...)
	})
}

type modelDelete struct {
	Model string `arg:"" help:"NAME@VERSION."`
	cmdline.RouterFlag
}

func (modelDelete) Help() string {
	return `A version that a namespace's policy names is not deleted: the CONFLICT error says which namespace. The number of a deleted version is not used again.

  pushmesh model delete clicks@4`
}

// Run removes the version.
func (c *modelDelete) Run(ctx context.Context, _ cmdline.IO) error {
	name, version, err := modelVersion("delete", c.Model)
	if err != nil {
		return err
	}
	if version == 0 {
		return cmdline.Usage("delete %q: it must be NAME@VERSION, like clicks@3", c.Model)
	}
	return withModels(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.RankServiceClient) error {
		_, err := api.DeleteModel(ctx, &pushmeshv1.DeleteModelRequest{Name: name, Version: version})
		return err
	})
}

type modelRollback struct {
	Name string `arg:"" help:"Name of the model."`
	cmdline.RouterFlag
}

func (modelRollback) Help() string {
	return `Every namespace that gives a share of its calls to a next version of the model uses only its pinned version again, within a
second. Prints the namespaces that were changed, one a line.

  pushmesh model rollback clicks`
}

// Run prints the namespaces.
func (c *modelRollback) Run(ctx context.Context, stdio cmdline.IO) error {
	return withModels(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.RankServiceClient) error {
		answer, err := api.RollBack(ctx, &pushmeshv1.RollBackRequest{Name: c.Name})
		if err != nil {
			return err
		}
		for _, prefix := range answer.GetNamespaces() {
			fmt.Fprintln(stdio.Out, prefix)
		}
		return nil
	})
}

// modelVersion reads NAME or NAME@VERSION, as the argument or flag what has it; version 0: none is
// named.
func modelVersion(what, text string) (name string, version uint64, err error) {
	name, number, versioned := strings.Cut(text, "@")
	if !versioned {
		return name, 0, nil
	}
	if version, err = strconv.ParseUint(number, 10, 64); err != nil || version == 0 || name == "" {
		return "", 0, cmdline.Usage("%s %q: it must be NAME@VERSION, like clicks@3", what, text)
	}
	return name, version, nil
}

func withModels(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.RankServiceClient) error) error {
	return cmdline.Call(ctx, f, cmdline.CallTimeout, pushmeshv1.NewRankServiceClient, call)
}
