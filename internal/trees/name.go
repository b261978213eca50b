package trees

import "strings"

// maxName is the most bytes of a model's name.
const maxName = 64

// CheckName finds what is wrong with the name of a model: INVALID_ARGUMENT.
func CheckName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return invalid("the name %.80q must be 1 to %d bytes of a-z, 0-9, - and _", name, maxName)
	}
	return nil
}
