package server

import (
	"fmt"
)

// MayFence says in SQL whether the present role sees what backend a does, and may end it: a's role
// is r. A superuser's backends are a superuser's to end.
const MayFence = `(a.backend_start IS NOT NULL AND CASE WHEN r.rolsuper THEN (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
	ELSE pg_has_role(r.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE') END)`

// SameBackend says in SQL that backend a is the one on record as w. To a role that may not see a's
// activity its start is not told: then a store's backend with that pid counts as the one that is
// looked for, so that what lives is not forgotten, and nobody else's does.
const SameBackend = `a.pid = w.pid AND (a.backend_start = w.backend_start
	OR a.backend_start IS NULL AND a.datname = current_database() AND a.application_name LIKE 'pushmesh-%')`

// Unfenceable is why role may not end connections of theirs, and what to do.
func Unfenceable(theirs, role string, super bool) string {
	if super {
		return fmt.Sprintf("its connections are those of a superuser, %q, and role %q may not end them: give all stores one ordinary role", theirs, role)
	}
	return fmt.Sprintf("its connections are those of role %[1]q, and role %[2]q may not see or end them: give all stores one role, or GRANT pg_read_all_stats, pg_signal_backend TO %[2]q", theirs, role)
}
