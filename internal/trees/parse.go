package trees

import (
	"bytes"
	"strconv"
)

// Parse reads a model file of any format, which it tells by how the file begins. Its errors are
// *code.Error: INVALID_ARGUMENT for a file that can't be read or is beyond limits, UNSUPPORTED for
// what is well-formed but not scored here. It takes memory in proportion to the file and within
// limits.
func Parse(data []byte, limits Limits) (*Model, error) {
	limits = limits.withDefaults()
	if len(data) > limits.Bytes {
		return nil, beyond("bytes", len(data), limits.Bytes)
	}
	switch {
	case bytes.HasPrefix(data, []byte("tree\n")), bytes.HasPrefix(data, []byte("tree\r\n")):
		return parseLightGBM(data, limits)
	case bytes.HasPrefix(data, []byte("bs64")):
		return nil, unsupported("XGBoost's base64 format")
	case looksLikeJSON(data):
		return parseXGBoostJSON(data, limits)
	case looksLikeUBJSON(data):
		return nil, unsupported("UBJSON; have XGBoost save the model as .json")
	}
	return parseXGBoostBinary(data, limits)
}

func looksLikeJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	data = bytes.TrimLeft(data[1:], " \t\r\n")
	return len(data) > 0 && (data[0] == '"' || data[0] == '}')
}

// looksLikeUBJSON: an object whose first key's length is an integer of one of its types, "{L" and
// the like.
func looksLikeUBJSON(data []byte) bool {
	return len(data) > 2 && data[0] == '{' && bytes.IndexByte([]byte("iUIlL$#"), data[1]) >= 0
}

func defaultNames(columns int) []string {
	names := make([]string, columns)
	for i := range names {
		names[i] = "f" + strconv.Itoa(i)
	}
	return names
}
