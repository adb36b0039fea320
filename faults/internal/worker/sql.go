//go:build unix

package worker

import "fmt"

// Each key has a register, a row that anybody reads, and whoever holds the key
// writes. The journal gets a row with each write.

// readSQL reads the register, and the server's timeline, which tells one server
// from the one that took over from it.
func readSQL(key string) string {
	return fmt.Sprintf(`SELECT value, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int FROM register_%s`, key)
}

const journalSQL = `INSERT INTO journal (key, op, worker, segment, swap) VALUES ($1, $2, $3, $4, $5)`

func registerSQL(key string) string { return fmt.Sprintf(`UPDATE register_%s SET value = $1`, key) }
