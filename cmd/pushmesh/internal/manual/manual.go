// Package manual writes manual pages (man 1) of what the command line knows of itself.
package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Page is that of an application, or of one of its commands with all that is below it; nil: of the
// application itself, without the flags of its commands. name is what the page is called:
// pushmesh, pushmesh-apply. see are other pages.
func Page(app *kong.Application, of *kong.Node, name, version string, see []string) string {
	node := of
	if node == nil {
		node = app.Node
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q \"pushmesh\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(escape(name)), version, escape(name), escape(firstLine(node.Help)))
	b.WriteString(".SH SYNOPSIS\n")
	if of == nil && len(app.Children) > 0 {
		fmt.Fprintf(&b, ".B %s\nCOMMAND [ARGUMENTS] [FLAGS]\n", escape(app.Name))
	} else {
		for _, leaf := range leaves(node) {
			fmt.Fprintf(&b, ".B %s\n.br\n", escape(synopsis(app, leaf)))
		}
	}
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, node.Help)
	paragraphs(&b, node.Detail)
	if of == nil && len(app.Children) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, child := range commands(app.Node) {
			term(&b, child.Name, child.Help)
		}
	} else {
		for _, leaf := range leaves(node) {
			section(&b, app, leaf, leaf != node)
		}
	}
	if len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, one := range see {
			comma := ","
			if i == len(see)-1 {
				comma = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", escape(one), comma)
		}
	}
	return b.String()
}

// section tells the arguments and flags of a command.
func section(b *strings.Builder, app *kong.Application, leaf *kong.Node, own bool) {
	title := "FLAGS"
	if own {
		title = synopsis(app, leaf)
	}
	fmt.Fprintf(b, ".SH %q\n", escape(title))
	if own {
		paragraphs(b, leaf.Help)
		paragraphs(b, leaf.Detail)
	}
	for _, arg := range leaf.Positional {
		term(b, arg.ShortSummary(), arg.Help)
	}
	for _, group := range leaf.AllFlags(true) {
		for _, flag := range group {
			if flag.Name == "help" {
				continue
			}
			name := "--" + flag.Name
			if flag.Short != 0 {
				name = fmt.Sprintf("-%c, %s", flag.Short, name)
			}
			if !flag.IsBool() {
				name += "=" + flag.FormatPlaceHolder()
			}
			help := flag.Help
			if len(flag.Envs) > 0 {
				help += " ($" + strings.Join(flag.Envs, ", $") + ")"
			}
			term(b, name, help)
		}
	}
}

func synopsis(app *kong.Application, leaf *kong.Node) string {
	words := []string{leaf.FullPath()}
	if leaf.Type == kong.ApplicationNode {
		words[0] = app.Name
	}
	for _, arg := range leaf.Positional {
		words = append(words, arg.ShortSummary())
	}
	return strings.Join(append(words, "[flags]"), " ")
}

// commands are those that are shown.
func commands(node *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(node.Children), func(n *kong.Node) bool { return n.Hidden || n.Type != kong.CommandNode })
}

// leaves are a command, or all commands below it that have none below them.
func leaves(node *kong.Node) (all []*kong.Node) {
	below := commands(node)
	if len(below) == 0 {
		return []*kong.Node{node}
	}
	for _, child := range below {
		all = append(all, leaves(child)...)
	}
	return all
}

func term(b *strings.Builder, name, help string) {
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escape(name), escape(strings.ReplaceAll(help, "\n", " ")))
}

// paragraphs are texts with empty lines between them; lines that begin with spaces stay as they
// are.
func paragraphs(b *strings.Builder, text string) {
	inside := false
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		if example := strings.HasPrefix(line, "  "); example != inside {
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[example])
			inside = example
		}
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(escape(line) + "\n")
	}
	if inside {
		b.WriteString(".fi\n")
	}
	b.WriteString(".PP\n")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(line, ".")
}

// escape has a text mean itself.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
