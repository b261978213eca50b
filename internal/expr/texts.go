package expr

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

func search(name string, a, b code) (code, bool) {
	x, okX := a.asText()
	y, okY := b.asText()
	if !okX || !okY {
		return code{}, false
	}
	var do func(s, sub string) bool
	switch name {
	case "startsWith":
		do = strings.HasPrefix
	case "endsWith":
		do = strings.HasSuffix
	default:
		return code{bool: func(in *Input) bool {
			s, sub := x(in), y(in)
			in.cost += uint64(len(s)) / 10
			return strings.Contains(s, sub)
		}}, true
	}
	return code{bool: func(in *Input) bool {
		s, sub := x(in), y(in)
		in.cost += uint64(min(len(s), len(sub))) / 10
		return do(s, sub)
	}}, true
}

// size of a text in code points, or of a map in entries.
func (c *compiler) size(of ast.Expr) (code, bool) {
	switch numbers, texts := table(of); {
	case numbers != nil:
		return code{int: func(in *Input) int64 { return int64(numbers(in).Len()) }}, true
	case texts != nil:
		return code{int: func(in *Input) int64 { return int64(texts(in).Len()) }}, true
	}
	a, ok := c.expr(of)
	if !ok || a.text == nil {
		return code{}, false
	}
	return code{int: func(in *Input) int64 {
		s := a.text(in)
		in.cost += uint64(len(s)) / 10
		return int64(utf8.RuneCountInString(s))
	}}, true
}

// matches has its pattern compiled once; checkCall bounded it.
func (c *compiler) matches(args []ast.Expr) (code, bool) {
	if len(args) != 2 {
		return code{}, false
	}
	a, ok := c.expr(args[0])
	if !ok {
		return code{}, false
	}
	pattern, okPattern := constant(args[1]).(types.String)
	text, okText := a.asText()
	if !okPattern || !okText {
		return code{}, false
	}
	compiled, err := regexp.Compile(string(pattern))
	if err != nil {
		return code{}, false
	}
	perByte := uint64(len(pattern)) / 4
	return code{bool: func(in *Input) bool {
		s := text(in)
		if len(s) > MaxMatched {
			in.bad = true
			return false
		}
		in.cost += uint64(len(s)) * perByte / 10
		return !in.bad && compiled.MatchString(s)
	}}, true
}
