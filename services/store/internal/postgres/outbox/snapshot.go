package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// snapshot is a pg_snapshot: it sees transactions below max that had ended, which are all but those
// under way.
type snapshot struct {
	text     string
	max      uint64
	underWay []string // ids of transactions below max that had not ended
}

// parseSnapshot reads the text form, "min:max:id,id,…".
func parseSnapshot(text string) (snapshot, error) {
	_, rest, ok := strings.Cut(text, ":")
	most, list, ok2 := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(most, 10, 64)
	if !ok || !ok2 || err != nil {
		return snapshot{}, fmt.Errorf("postgres: %q is no snapshot", text)
	}
	s := snapshot{text: text, max: n, underWay: []string{}}
	if list == "" {
		return s, nil
	}
	for id := range strings.SplitSeq(list, ",") {
		if _, err := strconv.ParseUint(id, 10, 64); err != nil {
			return snapshot{}, fmt.Errorf("postgres: %q is no snapshot", text)
		}
		s.underWay = append(s.underWay, id)
	}
	return s, nil
}
