package server

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// errOneDisk says that a commit's wait for the standby was cancelled. What it changed is there for
// all to see, and would be lost with this server: nobody may be told of it before something that
// was committed later has reached the standby.
var errOneDisk = errors.New("the commit's wait for the synchronous standby was cancelled: it may be on one disk alone")

// waitedInVain is the key of a connection's note that the server said so.
const waitedInVain = "pushmesh: waited in vain for the standby"

// noteStandby notes on a connection that a commit did not wait for the standby to the end. The
// server says OK to that commit all the same, after a warning without a code of its own, in the
// language that it was set to: what tells it from others is which of its routines warns.
func noteStandby(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[waitedInVain] = true
	}
}

// Replicated fails, once, where a commit on the connection since the last call did not wait for the
// standby to the end.
func Replicated(c *pgconn.PgConn) error {
	if _, in := c.CustomData()[waitedInVain]; !in {
		return nil
	}
	delete(c.CustomData(), waitedInVain)
	return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, RetryAfter, "the standby has not confirmed the change"), errOneDisk)
}
