package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
)

// maxReason bounds what an error repeats of an expression.
const maxReason = 300

// plain are what the parser and the checker of cel-go say, and how it is said to who never saw
// their grammar.
var plain = []struct {
	is   *regexp.Regexp
	said string
}{
	{regexp.MustCompile(`mismatched input '<EOF>' expecting .*`), "the expression ends too early"},
	{regexp.MustCompile(`(?s)(?:mismatched|extraneous) input '(.*)' expecting .*`), "'$1' is not expected here"},
	{regexp.MustCompile(`missing '(.*)' at '<EOF>'`), "'$1' is missing at the end"},
	{regexp.MustCompile(`(?s)missing '(.*)' at '(.*)'`), "'$1' is missing before '$2'"},
	{regexp.MustCompile(`(?s)no viable alternative at input '(.*)'`), "'$1' can't be read"},
	{regexp.MustCompile(`(?s)token recognition error at: '(.*)'`), "'$1' can't be read"},
	{regexp.MustCompile(`undeclared reference to '([^']*)'`), "the name '$1' is not known"},
	{regexp.MustCompile(`found no matching overload for '_?([^'_]+)_?' applied to '(.*)'`), "'$1' does not take $2"},
}

// explain makes one line of what is wrong. (What cel-go prints itself draws every error's column,
// which takes 0.2 s for a text made so.)
func explain(first *cel.Error) error {
	text := strings.ReplaceAll(strings.TrimPrefix(first.Message, "Syntax error: "), " (in container '')", "")
	for _, p := range plain {
		if text = p.is.ReplaceAllString(text, p.said); p.is.MatchString(first.Message) {
			break
		}
	}
	if strings.Contains(text, "(double, int)") || strings.Contains(text, "(int, double)") {
		text += "; 2 is an int, 2.0 a double"
	}
	line, column := first.Location.Line(), first.Location.Column()
	if line < 1 {
		return oneLine(errors.New(text))
	}
	return oneLine(fmt.Errorf("line %d, column %d: %s", line, column+1, text))
}

// at is an error at the place of e.
func at(tree *ast.AST, e ast.Expr, text string) error {
	place := tree.SourceInfo().GetStartLocation(e.ID())
	return oneLine(fmt.Errorf("line %d, column %d: %s", place.Line(), place.Column()+1, text))
}

func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return errors.New(text)
}
