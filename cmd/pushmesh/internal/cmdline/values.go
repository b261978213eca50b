package cmdline

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Mappers read values of flags as people write them: durations with days, and below 0, which is
// told better by the flag than as an unknown flag -5s.
func Mappers() []kong.Option {
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
	d, err := ParseDuration(text)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// days is a duration that begins with days.
var days = regexp.MustCompile(`^([-+]?)([0-9]+)d(.*)$`)

// ParseDuration is time.ParseDuration with days of 24 hours.
func ParseDuration(text string) (time.Duration, error) {
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

// KeyValues reads k=v pairs of a repeated flag.
func KeyValues(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, Usage("--%s %q: it must be NAME=VALUE", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// Numbers reads NAME=NUMBER of a flag that may be given often.
func Numbers(flag string, pairs []string) (map[string]float64, error) {
	texts, err := KeyValues(flag, pairs)
	if len(texts) == 0 {
		return nil, err
	}
	out := make(map[string]float64, len(texts))
	for name, text := range texts {
		if out[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, Usage("--%s %s: %q is not a number", flag, name, text)
		}
	}
	return out, nil
}

// Duration is d for the wire; 0 is unset there, which means the default.
func Duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
