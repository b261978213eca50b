package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// shownModel is a version of a model as JSON prints it.
type shownModel struct {
	Name      string   `json:"name"`
	Version   uint64   `json:"version"`
	Format    string   `json:"format"`
	Columns   []string `json:"columns"`
	Trees     uint32   `json:"trees"`
	Outputs   uint32   `json:"outputs"`
	Bytes     uint64   `json:"bytes"`
	SHA256    string   `json:"sha256"`
	CreatedAt string   `json:"created_at"`
	Comment   string   `json:"comment,omitempty"`
	UsedBy    []string `json:"used_by,omitempty"`
}

func shownVersion(m *pushmeshv1.Model) shownModel {
	return shownModel{
		Name: m.GetName(), Version: m.GetVersion(), Format: fileFormat(m.GetFormat()), Columns: m.GetColumns(), Trees: m.GetTrees(), Outputs: m.GetOutputs(),
		Bytes: m.GetBytes(), SHA256: hex.EncodeToString(m.GetDigest()), CreatedAt: m.GetCreatedAt().AsTime().Format(time.RFC3339), Comment: m.GetComment(),
		UsedBy: m.GetUsedBy(),
	}
}

// fileFormat is how --file-format names a format.
func fileFormat(f pushmeshv1.ModelFormat) string {
	for name, one := range fileFormats {
		if one == f && one != pushmeshv1.ModelFormat_MODEL_FORMAT_UNSPECIFIED {
			return name
		}
	}
	return "?"
}

func printModels(w io.Writer, f formatFlag, all ...*pushmeshv1.Model) error {
	if f.Format == "json" {
		for _, m := range all {
			if err := writeJSON(w, shownVersion(m)); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tFORMAT\tCOLUMNS\tTREES\tOUTPUTS\tBYTES\tCREATED\tUSED BY\tCOMMENT")
	for _, m := range all {
		s := shownVersion(m)
		fmt.Fprintf(t, "%s@%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n",
			s.Name, s.Version, s.Format, len(s.Columns), s.Trees, s.Outputs, s.Bytes, s.CreatedAt, orDash(strings.Join(s.UsedBy, ",")), orDash(oneLine(s.Comment)))
	}
	return t.Flush()
}

// oneLine keeps a text from breaking a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
