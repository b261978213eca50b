package message

// maxNames bounds the topic names that are kept to share their memory.
const maxNames = 4096

// Names makes topics' names of bytes that don't last. One goroutine uses it.
type Names map[string]string

// Of is the name that the bytes are.
func (n Names) Of(b []byte) string {
	if name, ok := n[string(b)]; ok {
		return name
	}
	if len(n) >= maxNames {
		clear(n)
	}
	name := string(b)
	n[name] = name
	return name
}
