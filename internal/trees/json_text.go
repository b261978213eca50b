package trees

import "encoding/json"

// unescape resolves a string's escapes.
func (j *jsonReader) unescape(span []byte) string {
	quoted := make([]byte, 0, len(span)+2)
	quoted = append(append(append(quoted, '"'), span...), '"')
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		j.fail("a string with a bad escape")
	}
	return text
}
