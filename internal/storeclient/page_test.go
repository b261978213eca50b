package storeclient

import "testing"

// A token that is taken says the same as the one made of what it said.
func FuzzParsePageToken(f *testing.F) {
	f.Add(PageToken("user", "name"))
	f.Add(PageToken("", ""))
	f.Add("!")
	f.Fuzz(func(t *testing.T, token string) {
		user, name, err := ParsePageToken(token)
		if err != nil || token == "" {
			return
		}
		again, named, err := ParsePageToken(PageToken(user, name))
		if err != nil || again != user || named != name {
			t.Fatalf("%q %q became %q %q, %v", user, name, again, named, err)
		}
	})
}
