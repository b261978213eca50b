package try

import (
	"errors"
	"testing"
)

var errBroken, errClosed = errors.New("broken"), errors.New("closed badly")

func steps(fail, closes error) (n int, err error) {
	defer Catch(&err)
	defer func() { err = errors.Join(err, closes) }()
	n = Get(1, nil)
	a, b := Get2(1, 2, fail)
	Do(nil)
	return n + a + b, nil
}

func TestAStepThatFailsEndsTheFunction(t *testing.T) {
	if n, err := steps(nil, nil); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := steps(errBroken, nil); n != 1 || !errors.Is(err, errBroken) || err.Error() != "broken" {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := steps(errBroken, errClosed); !errors.Is(err, errBroken) || !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := steps(nil, errClosed); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

func TestAnotherPanicGoesOn(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	var err error
	func() {
		defer Catch(&err)
		panic("other")
	}()
}
