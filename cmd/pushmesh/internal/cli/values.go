package cli

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// mappers read values of flags as people write them: durations with days, and below 0, which is
// told better by the flag than as an unknown flag -5s.
func mappers() []kong.Option {
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(decodeTime)),
	}
}

// below0 is what begins like a number below 0, and so like a flag.
var below0 = regexp.MustCompile(`^-[0-9.]`)

// pop takes the value of a flag off the command line.
func pop(ctx *kong.DecodeContext, what string) (string, error) {
	t := ctx.Scan.Peek()
	if text, ok := t.Value.(string); ok && t.Type == kong.UntypedToken && below0.MatchString(text) {
		ctx.Scan.Pop()
		return text, nil
	}
	var text string
	err := ctx.Scan.PopValueInto(what, &text)
	return text, err
}

func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := pop(ctx, "duration")
	if err != nil {
		return err
	}
	d, err := parseDuration(text)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// days is a duration that begins with days.
var days = regexp.MustCompile(`^([-+]?)([0-9]+)d(.*)$`)

// parseDuration is time.ParseDuration with days of 24 hours.
func parseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration: write it like 500ms, 90s, 10m, 24h or 7d", text)
	parts := days.FindStringSubmatch(text)
	if parts == nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, bad
		}
		return d, nil
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil || n > 36_500 {
		return 0, bad
	}
	rest := time.Duration(0)
	if parts[3] != "" {
		if rest, err = time.ParseDuration(parts[3]); err != nil || rest < 0 || strings.HasPrefix(parts[3], "+") {
			return 0, bad
		}
	}
	d := time.Duration(n)*24*time.Hour + rest
	if parts[1] == "-" {
		d = -d
	}
	return d, nil
}

func decodeTime(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := pop(ctx, "time")
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%q is not a time: write it like 2027-01-31T08:00:00Z", text)
	}
	target.Set(reflect.ValueOf(at))
	return nil
}
