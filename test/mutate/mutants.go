package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one small fault.
type mutant struct {
	id   int    // 1, 2, … in the order of the sources
	file string // base name
	line int
	fn   string // the function it lies in
	kind string // such as "boundary"; see mutants
	was  string // source text
	is   string // what takes its place; empty: nothing
	nth  int    // among those of the same key
	site *site
}

// key is what the mutant does, without the line: it survives changes around it.
func (m *mutant) key() string {
	return strings.Join([]string{m.file, m.fn, m.kind, oneLine(m.was), oneLine(m.is)}, " | ")
}

// label names the mutant in equivalent.txt.
func (m *mutant) label(pkg string) string {
	label := strings.TrimSuffix(pkg+" | "+m.key(), " | ")
	if m.nth > 1 {
		label += fmt.Sprintf(" | %d", m.nth)
	}
	return label
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// site is a place in a file with its mutants: an expression that may be another one, or a statement
// that may be left out.
type site struct {
	from, to int    // offsets in the file
	typ      string // of the expression; empty: a statement
	mutants  []*mutant
	inner    []*site
}

// mutants finds all of them, sorted by place. Kinds:
//
//	negate     a condition is its opposite
//	boundary   < is <=, and so on
//	compare    == is !=
//	logic      && is ||, or one operand alone
//	arithmetic + is -, and so on; += is -=
//	drop       a call, an assignment, a defer, a send, continue or break is left out
//	return     true is false; an error is nil
func (s *source) mutants() []*mutant {
	var all []*mutant
	for _, f := range s.files {
		w := &walker{source: s, file: f}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				w.fn = fn.Name.Name
				if fn.Recv != nil && len(fn.Recv.List) == 1 {
					w.fn = receiver(fn.Recv.List[0].Type) + "." + w.fn
				}
				ast.Inspect(fn.Body, w.visit)
			}
		}
		slices.SortStableFunc(w.found, func(a, b *mutant) int {
			return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.site.from, b.site.from))
		})
		all = append(all, w.found...)
	}
	seen := map[string]int{}
	for i, m := range all {
		m.id = i + 1
		seen[m.key()]++
		m.nth = seen[m.key()]
	}
	return all
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// walker gathers the mutants of a file.
type walker struct {
	*source
	file  *file
	fn    string
	found []*mutant
	sites map[[2]int]*site
}

func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.ArrayType:
		return false // its length is a constant
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.IfStmt:
		w.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			w.negate(n.Cond)
		}
	case *ast.BinaryExpr:
		w.binary(n)
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			w.result(r)
		}
	}
	return true
}

func (w *walker) text(from, to token.Pos) string {
	return string(w.file.text[w.offset(from):w.offset(to)])
}

func (w *walker) offset(p token.Pos) int { return w.fset.Position(p).Offset }

// at is the site of a node, made once.
func (w *walker) at(n ast.Node, typ string) *site {
	if w.sites == nil {
		w.sites = map[[2]int]*site{}
	}
	key := [2]int{w.offset(n.Pos()), w.offset(n.End())}
	if w.sites[key] == nil {
		w.sites[key] = &site{from: key[0], to: key[1], typ: typ}
	}
	return w.sites[key]
}

func (w *walker) add(n ast.Node, typ, kind, is string) {
	s := w.at(n, typ)
	m := &mutant{
		file: filepath.Base(w.file.name), line: w.fset.Position(n.Pos()).Line, fn: w.fn, kind: kind, was: w.text(n.Pos(), n.End()), is: is, site: s,
	}
	s.mutants = append(s.mutants, m)
	w.found = append(w.found, m)
}

// typeOf is how the type of an expression is written here; false: it is a constant, or its type
// can't be written in this file.
func (w *walker) typeOf(e ast.Expr) (string, bool) {
	tv, ok := w.info.Types[e]
	if !ok || tv.Value != nil || tv.Type == nil {
		return "", false
	}
	t := types.Default(tv.Type)
	switch t := t.(type) {
	case *types.Basic:
		return t.Name(), t.Kind() != types.Invalid && t.Info()&types.IsUntyped == 0
	case *types.Named:
		if t.TypeArgs().Len() == 0 && t.Obj().Pkg() == w.types && t.Obj().Parent() == w.types.Scope() {
			return t.Obj().Name(), true
		}
		return w.imported(t)
	}
	return "", false
}

// imported writes a type of another package, if this file imports that under its own name.
func (w *walker) imported(t *types.Named) (string, bool) {
	pkg := t.Obj().Pkg()
	if pkg == nil || t.TypeArgs().Len() > 0 || !t.Obj().Exported() {
		return "", false
	}
	for _, i := range w.file.ast.Imports {
		if i.Name == nil && strings.Trim(i.Path.Value, `"`) == pkg.Path() {
			return pkg.Name() + "." + t.Obj().Name(), true
		}
	}
	return "", false
}

func (w *walker) negate(cond ast.Expr) {
	if b, ok := ast.Unparen(cond).(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return // compare is the same
	}
	if typ, ok := w.typeOf(cond); ok {
		w.add(cond, typ, "negate", "!("+w.text(cond.Pos(), cond.End())+")")
	}
}

var (
	boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	compares   = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL}
	arithmetic = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL, token.AND_NOT: token.AND,
	}
	assigns = map[token.Token]token.Token{
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN,
	}
)

func (w *walker) binary(b *ast.BinaryExpr) {
	typ, ok := w.typeOf(b)
	if !ok {
		return
	}
	left, right := w.text(b.X.Pos(), b.X.End()), w.text(b.Y.Pos(), b.Y.End())
	with := func(op token.Token) string { return left + " " + op.String() + " " + right }
	switch {
	case boundaries[b.Op] != 0:
		w.add(b, typ, "boundary", with(boundaries[b.Op]))
	case compares[b.Op] != 0:
		w.add(b, typ, "compare", with(compares[b.Op]))
	case b.Op == token.LAND:
		w.add(b, typ, "logic", left)
		w.add(b, typ, "logic", right)
	case b.Op == token.LOR:
		w.add(b, typ, "logic", left)
		w.add(b, typ, "logic", right)
	case arithmetic[b.Op] != 0 && w.number(b) && !zero(b.Y):
		w.add(b, typ, "arithmetic", with(arithmetic[b.Op]))
	}
}

// zero reports whether an operand is written as 0, which nothing can be divided by.
func zero(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Value == "0"
}

func (w *walker) number(e ast.Expr) bool {
	basic, ok := w.info.Types[e].Type.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0
}

func (w *walker) result(e ast.Expr) {
	id, ok := e.(*ast.Ident)
	if !ok {
		return
	}
	switch obj := w.info.Uses[id].(type) {
	case *types.Const:
		switch {
		case obj.Pkg() != nil || obj.Parent() != types.Universe:
		case id.Name == "true":
			w.add(e, "bool", "return", "false")
		case id.Name == "false":
			w.add(e, "bool", "return", "true")
		}
	case *types.Var:
		if types.Identical(obj.Type(), types.Universe.Lookup("error").Type()) {
			w.add(e, "error", "return", "nil")
		}
	}
}

func (w *walker) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && !w.terminates(call) && !w.talks(call) {
				w.drop(s)
			}
		case *ast.AssignStmt:
			w.assign(s)
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
			w.drop(s)
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
				w.drop(s)
			}
		}
	}
}

func (w *walker) drop(s ast.Stmt) { w.add(s, "", "drop", "") }

func (w *walker) assign(s *ast.AssignStmt) {
	if s.Tok == token.DEFINE {
		return
	}
	if id, ok := s.Lhs[0].(*ast.Ident); ok && id.Name == "_" {
		return
	}
	w.drop(s)
	if op := assigns[s.Tok]; op != 0 && w.number(s.Lhs[0]) {
		w.add(s, "", "arithmetic", w.text(s.Lhs[0].Pos(), s.Lhs[0].End())+" "+op.String()+" "+w.text(s.Rhs[0].Pos(), s.Rhs[0].End()))
	}
}

// terminates reports whether a call ends the function's flow: without it the compiler would miss a
// return.
func (w *walker) terminates(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// talks reports whether a call writes to a log, adds to a trace or yields the processor: no promise
// is in it.
func (w *walker) talks(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if s := w.info.Selections[sel]; s != nil {
		name := types.TypeString(s.Recv(), nil)
		return strings.HasSuffix(name, "log/slog.Logger") || strings.HasPrefix(name, "go.opentelemetry.io/otel/trace.")
	}
	return w.text(sel.Pos(), sel.End()) == "runtime.Gosched"
}

func (m *mutant) String() string {
	is := oneLine(m.is)
	if is == "" {
		is = "(nothing)"
	}
	return fmt.Sprintf("%s:%d %s: %s: %s → %s", m.file, m.line, m.fn, m.kind, oneLine(m.was), is)
}
