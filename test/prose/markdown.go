package main

import (
	"regexp"
	"strings"
)

var (
	// item is the beginning of a list's item, and quote that of a quotation.
	item  = regexp.MustCompile(`^(\s*)([-*+]|\d+\.) +`)
	quote = regexp.MustCompile(`^\s*>`)
	// fence begins and ends code.
	fence = regexp.MustCompile("^\\s*(```|~~~)")
	// end of a sentence: its mark, what closes after it, and the beginning of the next one.
	end = regexp.MustCompile("([.!?][)\"'”’`*_]*) +([A-Z0-9“\"'`(\\[*_])")
	// short forms whose point ends no sentence.
	short = regexp.MustCompile(`(^|[ (])(e\.g\.|i\.e\.|cf\.|vs\.|approx\.|no\.|etc\.|\d+\.)$`)
)

// markdown returns text with one sentence a line. Tables, code, headings, quotations and HTML stay
// as they are.
func markdown(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	var out []string
	coded, indented := false, false
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if fence.MatchString(l) {
			coded = !coded
		}
		// Code by indentation begins behind an empty line, and goes on over such lines.
		indented = strings.HasPrefix(l, "    ") && (indented || len(out) > 0 && out[len(out)-1] == "" && !inList(out)) || indented && l == ""
		if coded || indented || stays(l) {
			out = append(out, l)
			continue
		}
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		first := indent
		if m := item.FindString(l); m != "" {
			first, indent = m, strings.Repeat(" ", len(m))
		}
		whole := []string{strings.TrimSpace(l[len(first):])}
		for i+1 < len(lines) && !stays(lines[i+1]) && !fence.MatchString(lines[i+1]) && !item.MatchString(lines[i+1]) {
			i++
			whole = append(whole, strings.TrimSpace(lines[i]))
		}
		for n, s := range sentences(strings.Join(whole, " ")) {
			if n == 0 {
				out = append(out, first+s)
			} else {
				out = append(out, indent+s)
			}
		}
	}
	return []byte(strings.Join(out, "\n"))
}

// inList reports whether the last line that isn't indented begins an item.
func inList(out []string) bool {
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] != "" && !strings.HasPrefix(out[i], " ") {
			return item.MatchString(out[i])
		}
	}
	return false
}

// stays reports whether a line is no part of a paragraph.
func stays(l string) bool {
	t := strings.TrimSpace(l)
	return t == "" || strings.HasPrefix(t, "#") || strings.HasPrefix(t, "|") || strings.HasPrefix(t, "<") || quote.MatchString(l) ||
		strings.HasPrefix(t, "---") || strings.HasPrefix(t, "===")
}

// sentences cuts a paragraph.
func sentences(p string) (out []string) {
	from := 0
	for at := 0; ; {
		m := end.FindStringSubmatchIndex(p[at:])
		if m == nil {
			return append(out, p[from:])
		}
		cut, next := at+m[3], at+m[4]
		if !short.MatchString(p[from:cut]) && strings.Count(p[from:cut], "`")%2 == 0 {
			out = append(out, p[from:cut])
			from = next
		}
		at = next
	}
}
