package ranking

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// try makes the job of the new version. Where that can't be, or isn't loaded, it is the pinned
// version's, whose spec is given with what is wrong with it.
func (w *work) try(pinned *score.Spec, wrong error, parts score.Parts) error {
	spec, err := score.Compile(score.OfVersion(w.req.GetRank(), w.trial.of.next), parts)
	if err == nil {
		err = w.begin(spec)
	}
	if wrong == nil {
		w.pinned = pinned
	}
	if err == nil {
		w.trial.began()
		return nil
	}
	if wrong != nil {
		return wrong
	}
	if code.Of(err) == wirev1.Code_CODE_UNAVAILABLE { // it is being loaded
		w.pinned, w.trial = nil, &trial{all: w.trial.all, of: w.trial.of}
		return w.begin(pinned)
	}
	w.trial.began()
	return w.goBack(err)
}

// goBack has the pinned version do what the new one failed, as err says. An error is that of both:
// it is the caller's.
func (w *work) goBack(err error) error {
	pinned := w.pinned
	w.pinned, w.why = nil, err
	return w.begin(pinned)
}

// admit enters the pool, for the pinned version where the new one is too much work.
func (w *work) admit(enter func() error) error {
	err := enter()
	if w.pinned != nil && code.Of(err) == wirev1.Code_CODE_INVALID_ARGUMENT {
		if wrong := w.goBack(err); wrong != nil {
			return wrong
		}
		return enter()
	}
	return err
}

// Step implements cpupool.Task.
func (w *work) Step(slice time.Duration) (done bool, err error) {
	switch {
	case w.trial == nil:
		return w.job.Step(slice)
	case w.why != nil:
		if done, err = w.job.Step(slice); done && err == nil {
			w.trial.erred(w.why)
		}
		return done, err
	}
	if done, err = w.attempt(slice); err != nil && w.pinned != nil {
		return false, w.goBack(err)
	}
	return done, err
}

// attempt survives a panic of a version that the pinned one stands behind.
func (w *work) attempt(slice time.Duration) (done bool, err error) {
	if w.pinned != nil {
		defer func() {
			if reason := recover(); reason != nil {
				w.trial.all.log.Error("a job panicked", "reason", reason, "stack", string(debug.Stack()))
				done, err = false, code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("the job panicked: %v", reason))
			}
		}()
	}
	began, before := time.Now(), w.job.Scored()
	done, err = w.job.Step(slice)
	w.trial.took(time.Since(began), w.job.Scored()-before)
	return done, err
}

// answered says that the job is done.
func (w *work) answered() {
	if w.trial != nil {
		w.trial.all.answered(w.trial.next && w.why == nil)
	}
}

// lost says that a step of the job did not return, in which it may still be.
func (w *work) lost(err error) {
	if w.trial != nil && w.trial.next {
		w.trial.erred(err)
	}
}
