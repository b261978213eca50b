package identity

import "testing"

// Origins lie in logs, and edges of other versions compare them: they never change.
func TestOrigin(t *testing.T) {
	seen := map[uint64]string{}
	for who, want := range map[[2]string]uint64{
		{"", ""}: 0x987ab3ff9c0b346e, {"", "a"}: 0xaab7dae679692a02, {"a", ""}: 0xd5ea091ca64e25e3, {"a", "b"}: 0x50f44054e0040417,
		{"ab", ""}: 0x9098e2f2c2aa0235, {"", "ab"}: 0xaf145b5f9adad10b, {"user", "phone"}: 0x278f83b2a9a8a711,
	} {
		got := Origin(who[0], who[1])
		if got != want {
			t.Errorf("%q: %#x", who, got)
		}
		if other, ok := seen[got]; ok || got == 0 {
			t.Errorf("%q has that of %q", who, other)
		}
		seen[got] = who[0] + "/" + who[1]
	}
}
