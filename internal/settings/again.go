package settings

import (
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// OnHangUp is for a process that is told to read its settings again (SIGHUP). It reads the same
// file, variables and args as Parse has read into now, and gives take the settings that a process
// can change while it runs: fields with the tag live. What has changed, and what of it counts from
// the next start alone, is logged. Where there is a fault nothing changes.
func OnHangUp[S any, P interface {
	*S
	Checker
}](now P, name string, args []string, log *slog.Logger, take func(P)) func() {
	return func() {
		changed, later, err := again(now, P(new(S)), name, args)
		if err != nil {
			log.Error("SIGHUP: the settings have a fault, so nothing has changed", "error", err)
			return
		}
		take(now)
		switch {
		case len(later) > 0:
			log.Warn("SIGHUP: settings were read again; some have changed that count from the next start alone", "changed", strings.Join(changed, ","), "need_restart", strings.Join(later, ","))
		case len(changed) > 0:
			log.Info("SIGHUP: settings were read again", "changed", strings.Join(changed, ","))
		default:
			log.Info("SIGHUP: settings were read again, and nothing has changed; files of certificates, keys, issuers and backends are read again by themselves")
		}
	}
}

// again reads settings into read, moves the live ones that have changed into now, and says which
// these are, and which others have changed.
func again(now, read Checker, name string, args []string) (changed, later []string, err error) {
	p, err := parse(read, name, "", args, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	before, err := kong.New(now, kong.Name(name), kong.DefaultEnvars("PUSHMESH"), kong.Embed(&file{}))
	if err != nil {
		return nil, nil, errors.Join(errors.New("settings"), err)
	}
	was := map[string]*kong.Flag{}
	for _, f := range before.Model.Flags {
		was[f.Name] = f
	}
	for _, f := range p.context.Flags() {
		old := was[f.Name]
		switch {
		case f.Name == "help" || f.Name == configFlag || reflect.DeepEqual(old.Target.Interface(), f.Target.Interface()):
		case f.Tag.Has("live"):
			old.Target.Set(f.Target)
			changed = append(changed, f.Name)
		default:
			later = append(later, f.Name)
		}
	}
	return changed, later, nil
}
