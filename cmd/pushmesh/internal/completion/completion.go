// Package completion finds what the last word of a command line may become, for shells.
package completion

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Files and Folders stand for names of files, or of folders, which the shell knows.
const (
	Files   = ":files"
	Folders = ":folders"
)

// Candidate is a word that may be there, with what it means; or Files, or Folders.
type Candidate struct{ Word, Help string }

// Of finds what may be in the place of the last of words, which may be empty, after those before
// it; the name of the program is none of them.
func Of(app *kong.Application, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	words = joined(words)
	node, place, awaits := app.Node, 0, (*kong.Flag)(nil)
	for _, word := range words[:len(words)-1] {
		switch {
		case awaits != nil:
			awaits = nil
		case word == "--":
			return []Candidate{{Files, ""}}
		case strings.HasPrefix(word, "-"):
			awaits = withValue(node, word)
		default:
			if child := childOf(node, word); child != nil {
				node, place = child, 0
				continue
			}
			place++
		}
	}
	last := words[len(words)-1]
	var all []Candidate
	name, text, inside := strings.Cut(last, "=")
	switch {
	case awaits != nil:
		all = values(awaits.Value)
	case strings.HasPrefix(last, "--") && inside:
		if flag := withValue(node, name); flag != nil {
			all, last = values(flag.Value), text
		}
	case strings.HasPrefix(last, "-"):
		all = flags(node)
	default:
		all = after(node, place)
	}
	all = slices.DeleteFunc(all, func(c Candidate) bool { return !isNames(c) && !strings.HasPrefix(c.Word, last) })
	slices.SortFunc(all, func(a, b Candidate) int { return strings.Compare(a.Word, b.Word) })
	return all
}

func isNames(c Candidate) bool { return c.Word == Files || c.Word == Folders }

// joined puts together what some shells take apart: --flag, = and a value.
func joined(words []string) (all []string) {
	for i := 0; i < len(words); i++ {
		if words[i] != "=" || len(all) == 0 || !strings.HasPrefix(all[len(all)-1], "--") {
			all = append(all, words[i])
			continue
		}
		all[len(all)-1] += "="
		if i+1 < len(words) {
			i++
			all[len(all)-1] += words[i]
		}
	}
	return all
}

func childOf(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && (child.Name == word || slices.Contains(child.Aliases, word)) {
			return child
		}
	}
	return nil
}

// withValue is the flag that a word is, if its value is another word.
func withValue(node *kong.Node, word string) *kong.Flag {
	for _, flag := range all(node) {
		if (word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short)) && !flag.IsBool() && !flag.IsCounter() {
			return flag
		}
	}
	return nil
}

// all flags of a command, and of those that it is below.
func all(node *kong.Node) (flags []*kong.Flag) {
	for _, group := range node.AllFlags(true) {
		flags = append(flags, group...)
	}
	return flags
}

func flags(node *kong.Node) (out []Candidate) {
	for _, flag := range all(node) {
		out = append(out, Candidate{"--" + flag.Name, flag.Help})
	}
	return out
}

// after is what may follow a command and so many arguments: its subcommands, or its next argument.
func after(node *kong.Node, place int) (out []Candidate) {
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			out = append(out, Candidate{child.Name, child.Help})
		}
	}
	if n := len(node.Positional); n > 0 {
		if place < n {
			out = append(out, values(node.Positional[place])...)
		} else if last := node.Positional[n-1]; last.IsSlice() {
			out = append(out, values(last)...)
		}
	}
	return out
}

// values are those that a flag or an argument may have, where they are known.
func values(v *kong.Value) (out []Candidate) {
	if v.Enum != "" {
		for _, word := range v.EnumSlice() {
			out = append(out, Candidate{word, ""})
		}
	}
	placeholder := v.Tag.PlaceHolder
	switch {
	case len(out) > 0:
	case placeholder == "DIR", placeholder == "FOLDER", v.Tag.Type == "existingdir":
		return []Candidate{{Folders, ""}}
	case placeholder == "FILE", placeholder == "PATH", v.Tag.Type == "existingfile", v.Tag.Type == "path", v.Name == "file":
		return []Candidate{{Files, ""}}
	}
	return out
}
