package edge

import (
	"encoding/json"
	"net/http"
)

// describeGroups tells people what the edge knows of its groups.
func (e *Edge) describeGroups(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(e.mesh.DescribeGroups(r.Context())) // who asked may be gone
}
