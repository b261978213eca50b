package trees

import (
	"slices"
	"unicode/utf8"
)

// ParseNamed is Parse with names for the columns of a file that has none. INVALID_ARGUMENT: they
// are not as many as the file has columns, differ from the names that the file has, or a name is
// empty, used twice or no UTF-8. Without columns the file's own names are checked in the same way.
func ParseNamed(data []byte, columns []string, limits Limits) (*Model, error) {
	m, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	if len(columns) > 0 {
		if len(columns) != len(m.columns) {
			return nil, invalid("%d names for %d columns", len(columns), len(m.columns))
		}
		if m.named && !slices.Equal(columns, m.columns) {
			return nil, invalid("the file names its columns, and with other names")
		}
		m.columns, m.named = slices.Clone(columns), true
	}
	m.places = make(map[string]int, len(m.columns))
	for i, name := range m.columns {
		_, twice := m.places[name]
		switch {
		case name == "" || !utf8.ValidString(name):
			return nil, invalid("column %d: %q is not a valid name", i, name)
		case twice:
			return nil, invalid("two columns are named %q", name)
		}
		m.places[name] = i
	}
	return m, nil
}

// Size is about how many bytes the model takes.
func (m *Model) Size() int {
	const node, tree, slot, word, column = 16 + 8 + 4 + 8, 32, 8, 4, 64
	size := node*cap(m.steps) + tree*cap(m.trees) + slot*cap(m.slots) + word*cap(m.sets) + 8*cap(m.base)
	for _, name := range m.columns {
		size += column + len(name)
	}
	return size
}
