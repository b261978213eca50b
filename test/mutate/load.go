package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// source is one package, parsed and type-checked, as the go command would build it here.
type source struct {
	path  string // import path
	dir   string
	name  string
	fset  *token.FileSet
	files []*file
	info  *types.Info
	types *types.Package
}

type file struct {
	name string // absolute
	text []byte
	ast  *ast.File
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
	DepOnly                       bool
}

func load(ctx context.Context, pattern string) (*source, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-json=ImportPath,Dir,Name,Export,GoFiles,DepOnly", "--", pattern)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	exports := map[string]string{}
	var target *listed
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		l := &listed{}
		if err := dec.Decode(l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly {
			if target != nil {
				return nil, fmt.Errorf("%s names several packages: give them one by one", pattern)
			}
			target = l
		}
	}
	if target == nil {
		return nil, fmt.Errorf("%s names no package", pattern)
	}
	return parse(target, exports)
}

func parse(l *listed, exports map[string]string) (*source, error) {
	s := &source{path: l.ImportPath, dir: l.Dir, name: l.Name, fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var parsed []*ast.File
	for _, name := range l.GoFiles {
		path := filepath.Join(l.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, &file{name: path, text: text, ast: f})
		parsed = append(parsed, f)
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	}
	cfg := types.Config{Importer: importer.ForCompiler(s.fset, "gc", lookup)}
	var err error
	s.types, err = cfg.Check(l.ImportPath, s.fset, parsed, s.info)
	return s, err
}
