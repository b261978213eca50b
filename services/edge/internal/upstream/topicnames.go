package upstream

// namesKept bounds each of the two generations of names.
const namesKept = 8192

// topicNames has a string for every topic that came lately, so that a message of a topic that had
// one before makes none.
type topicNames struct {
	young, old map[string]string
}

func (n *topicNames) of(topic []byte) string {
	if name, ok := n.young[string(topic)]; ok {
		return name
	}
	name, ok := n.old[string(topic)]
	if !ok {
		name = string(topic)
	}
	if n.young == nil || len(n.young) == namesKept {
		n.young, n.old = map[string]string{}, n.young
	}
	n.young[name] = name
	return name
}
