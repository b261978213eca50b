package edge

import (
	"encoding/json"
	"net/http"
)

// describeGroups tells people what the edge knows of its groups, or of the one that they name.
func (e *Edge) describeGroups(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	// who asked may be gone
	_ = out.Encode(e.mesh.DescribeGroups(r.Context(), r.FormValue("group")))
}
