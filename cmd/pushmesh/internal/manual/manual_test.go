package manual

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

type grammar struct {
	Name command `cmd:"" help:"Names things."`
	Less struct {
		Level string `short:"l" env:"LEVEL" placeholder:"N" help:"How 'much'."`
	} `cmd:"" help:"Less of it."`
	Hidden struct{} `cmd:"" hidden:"" help:"secret"`
}

type command struct {
	Put struct {
		Prefix string `arg:"" help:"The prefix."`
		Force  bool   `help:"Do it."`
	} `cmd:"" help:"Puts."`
}

func (command) Help() string { return "It names.\n\n  name put x\n.hidden" }

func TestPages(t *testing.T) {
	parser, err := kong.New(&grammar{}, kong.Name("prog"), kong.Description("A program."))
	if err != nil {
		t.Fatal(err)
	}
	whole := Page(parser.Model, nil, "prog", "v1", []string{"prog-name", "prog-less"})
	name := Page(parser.Model, parser.Model.Children[0], "prog-name", "v1", nil)
	less := Page(parser.Model, parser.Model.Children[1], "prog-less", "v1", nil)
	for page, wants := range map[string][]string{
		whole: {".TH PROG 1 \"\" \"v1\" \"pushmesh\"\n.SH NAME\nprog \\- A program\n", ".TP\n.B less\nLess of it.\n", ".BR prog\\-name (1),\n.BR prog\\-less (1)\n"},
		name: {
			"prog\\-name \\- Names things\n", ".B prog name put <prefix> [flags]\n", "\n.PP\n.nf\n  name put x\n.fi\n\\&.hidden\n", ".SH \"prog name put <prefix> [flags]\"\nPuts.\n",
			".TP\n.B <prefix>\nThe prefix.\n", ".TP\n.B \\-\\-force\nDo it.\n",
		},
		less: {".SH \"FLAGS\"\n.TP\n.B \\-l, \\-\\-level=N\nHow \\(aqmuch\\(aq. ($LEVEL)\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%q is not in\n%s", want, page)
			}
		}
		if strings.Contains(page, "secret") || strings.Contains(page, "help") {
			t.Errorf("it has what is hidden:\n%s", page)
		}
	}
}
