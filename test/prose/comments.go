package main

import (
	"bytes"
	"go/format"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

const (
	column   = 100 // the last one of a comment
	tabWidth = 4
)

// directive is a comment for tools, which is one line however long it is.
var directive = regexp.MustCompile(`^//([a-z]+:|#|line |export |\s*want )`)

// list is the beginning of an item as gofmt writes it.
var list = regexp.MustCompile(`^//   (-|\d+\.) `)

// comments returns Go source whose comments end before the column. Only paragraphs with a line that
// is too long change.
func comments(path string, src []byte) ([]byte, error) {
	lines := strings.Split(string(src), "\n")
	starts := commentStarts(path, src)
	var out []string
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		at, ok := starts[i]
		switch {
		case !ok || width(l) <= column && strings.TrimSpace(l[:at]) != "":
			out = append(out, l)
		case strings.TrimSpace(l[:at]) != "":
			out = append(out, trailing(l, at)...)
		default:
			n := 1
			for i+n < len(lines) && goesOn(lines, starts, i, i+n) {
				n++
			}
			out = append(out, paragraph(lines[i:i+n], l[:at])...)
			i += n - 1
		}
	}
	text := []byte(strings.Join(out, "\n"))
	if bytes.Equal(text, src) {
		return src, nil
	}
	return format.Source(text)
}

// commentStarts returns for each line with a // comment the byte at which it begins.
func commentStarts(path string, src []byte) map[int]int {
	set := token.NewFileSet()
	f := set.AddFile(path, -1, len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, scanner.ScanComments)
	starts := map[int]int{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return starts
		}
		if tok == token.COMMENT && strings.HasPrefix(text, "//") {
			p := f.Position(pos)
			starts[p.Line-1] = p.Column - 1
		}
	}
}

// goesOn reports whether line next belongs to the paragraph that begins in line first.
func goesOn(lines []string, starts map[int]int, first, next int) bool {
	at, ok := starts[next]
	if !ok || at != starts[first] || strings.TrimSpace(lines[next][:at]) != "" {
		return false
	}
	text, before := lines[next][at:], lines[first][at:]
	if fixed(before) || fixed(text) || list.MatchString(text) {
		return false
	}
	if list.MatchString(before) {
		return strings.HasPrefix(text, "//     ")
	}
	return !strings.HasPrefix(text, "//  ") && !strings.HasPrefix(text, "//\t")
}

// fixed reports whether a comment's line stays as it is: empty, a directive, a heading, or code.
func fixed(text string) bool {
	return text == "//" || directive.MatchString(text) || strings.HasPrefix(text, "//\t") || strings.HasPrefix(text, "// # ") ||
		strings.HasPrefix(text, "//  ") && !list.MatchString(text) && !strings.HasPrefix(text, "//     ") || strings.HasPrefix(text, "// |")
}

// paragraph wraps lines if one of them is too long.
func paragraph(lines []string, indent string) []string {
	long := false
	for _, l := range lines {
		long = long || width(l) > column
	}
	if !long || fixed(lines[0][len(indent):]) {
		return lines
	}
	first, rest := "// ", "// "
	text := lines[0][len(indent):]
	if m := list.FindString(text); m != "" {
		first, rest = m, "//     "
		text = text[len(m):]
	} else {
		text = strings.TrimPrefix(text, "//")
	}
	words := strings.Fields(text)
	for _, l := range lines[1:] {
		words = append(words, strings.Fields(strings.TrimPrefix(l[len(indent):], "//"))...)
	}
	return wrap(words, indent+first, indent+rest)
}

// trailing puts a comment that is too long beside its code before it, or after it where the code
// opens a block.
func trailing(line string, at int) []string {
	code, text := strings.TrimRight(line[:at], " \t"), line[at:]
	if directive.MatchString(text) || strings.Contains(text, "//nolint") {
		return []string{line}
	}
	indent := code[:len(code)-len(strings.TrimLeft(code, "\t"))]
	words := strings.Fields(strings.TrimPrefix(text, "//"))
	opens := strings.HasSuffix(code, "{") || strings.HasSuffix(code, ":") || strings.HasSuffix(code, "(")
	if opens || strings.HasPrefix(strings.TrimSpace(code), "}") {
		if opens {
			indent += "\t"
		}
		return append([]string{code}, wrap(words, indent+"// ", indent+"// ")...)
	}
	return append(wrap(words, indent+"// ", indent+"// "), code)
}

// wrap fills lines with words.
func wrap(words []string, first, rest string) (lines []string) {
	line, empty := first, true
	for _, w := range words {
		if !empty && width(line)+1+width(w) > column {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += w
		empty = false
	}
	return append(lines, line)
}

// width of a line in columns.
func width(line string) (n int) {
	for _, r := range line {
		if r == '\t' {
			n += tabWidth
		} else {
			n++
		}
	}
	return n
}
