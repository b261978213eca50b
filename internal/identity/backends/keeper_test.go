package backends

import "testing"

// A file that is written in place is empty at first, and then has the first of its backends alone.
func TestAHalfWrittenFileEndsNoCall(t *testing.T) {
	const whole = "backends:\n- name: a\n  roles: [auditor]\n  certificates: [c]\n- name: b\n  roles: [auditor]\n  certificates: [d]\n"
	w := keeper(t, whole)
	var ended error
	_, release, err := w.Hold(&Proof{Certificate: []string{"d"}}, func(err error) { ended = err })
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for n := range whole {
		w.write(t, whole[:n])
		w.look()
		if _, err := w.Find(&Proof{Certificate: []string{"d"}}); err != nil || ended != nil {
			t.Fatalf("with %d of %d bytes written: a call is refused with %v, one under way ends with %v", n, len(whole), err, ended)
		}
	}
	w.write(t, whole)
	w.look()
	w.look()
	if err := w.Check(); err != nil || w.Stats(0).Failed != 0 {
		t.Errorf("the whole file: %v, %d failed", err, w.Stats(0).Failed)
	}
}
