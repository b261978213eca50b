// Package try lets a function of many steps, each of which may fail, be read as its steps: a step
// that fails ends the function, whose deferred calls run, and its error is the result, as if it had
// been returned. It is for measurements, where a step that failed leaves nothing to go on with.
//
//	func fill(ctx context.Context, url string) (err error) {
//		defer try.Catch(&err)
//		conn := try.Get(pgx.Connect(ctx, url))
//		defer func() { err = errors.Join(err, conn.Close(ctx)) }()
//		try.Get(conn.Exec(ctx, sql))
//		return nil
//	}
package try

import "errors"

// failure is what a step that failed panics with, up to Catch in the same function.
type failure struct{ error }

// Catch is deferred by every function that has steps, before anything else is.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		if *err == nil {
			*err = r.error
		} else { // that of what was deferred
			*err = errors.Join(r.error, *err)
		}
	default:
		panic(r)
	}
}

// Do is a step without a value.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get is a step with one value.
func Get[A any](a A, err error) A {
	Do(err)
	return a
}

// Get2 is a step with two.
func Get2[A, B any](a A, b B, err error) (A, B) {
	Do(err)
	return a, b
}
