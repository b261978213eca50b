package doctor

import (
	"regexp"
	"strconv"
	"strings"
)

// releasePattern matches versions of releases. Other builds tell their commit, or "devel".
var releasePattern = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+`)

// minorVersion returns the two numbers by which releases are compared. Of a build that is no
// release, also of one that go made a version up for (v0.0.0-DATE-COMMIT), it returns false.
func minorVersion(version string) (major, minor int, known bool) {
	m := releasePattern.FindStringSubmatch(version)
	if m == nil || strings.HasPrefix(version, "v0.0.0-") {
		return 0, 0, false
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(m[2])
	return major, minor, err == nil
}

// tooFarApart reports whether two of the versions are releases that are not made to run together:
// their minor versions differ by more than one, or their major ones differ.
func tooFarApart(versions map[string][]string) bool {
	for one := range versions {
		for other := range versions {
			major, minor, known := minorVersion(one)
			otherMajor, otherMinor, otherKnown := minorVersion(other)
			if known && otherKnown && (major != otherMajor || max(minor-otherMinor, otherMinor-minor) > 1) {
				return true
			}
		}
	}
	return false
}

// checkVersions warns of nodes of several versions, which work together while a mesh is upgraded,
// and fails where no upgrade may have led there.
func checkVersions(r *Report, all []*seen) {
	by := map[string][]string{}
	for _, o := range all {
		if o.node.GetProblem() == "" {
			version := o.node.GetVersion()
			if version == "" {
				version = "unknown"
			}
			by[version] = append(by[version], o.name())
		}
	}
	var told []string
	for version, who := range by {
		told = append(told, version+": "+strings.Join(sorted(who), ", "))
	}
	found := strings.Join(sorted(told), "; ")
	switch {
	case tooFarApart(by):
		r.add(Fail, "versions", "nodes", found, "versions more than one minor version apart are not made to run together: upgrade one minor version after the other (docs/upgrading.md)")
	case len(by) > 1:
		r.add(Warn, "versions", "nodes", found, "finish the upgrade: nodes of different versions are supported only while one is under way, and one minor version apart (docs/upgrading.md)")
	default:
		for version := range by {
			r.ok("versions", "nodes", "all run %s", version)
		}
	}
}
