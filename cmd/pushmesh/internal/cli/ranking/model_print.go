package ranking

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// ModelVersion is a version of a model as JSON prints it.
type ModelVersion struct {
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

func shownVersion(m *pushmeshv1.Model) ModelVersion {
	return ModelVersion{
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

func printModels(w io.Writer, f cmdline.FormatFlag, all ...*pushmeshv1.Model) error {
	t := f.Table(w, "MODEL", "FORMAT", "COLUMNS", "TREES", "OUTPUTS", "BYTES", "CREATED", "USED BY", "COMMENT")
	for _, m := range all {
		s := shownVersion(m)
		err := t.Row(s, fmt.Sprint(s.Name, "@", s.Version), s.Format, len(s.Columns), s.Trees, s.Outputs, s.Bytes, s.CreatedAt,
			cmdline.OrDash(strings.Join(s.UsedBy, ",")), cmdline.OrDash(oneLine(s.Comment)))
		if err != nil {
			return err
		}
	}
	return t.Flush()
}

// oneLine keeps a text from breaking a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
