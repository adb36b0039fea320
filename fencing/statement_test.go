package fencing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefuseStatement(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		`INSERT INTO exports VALUES (1)`, `insert into exports values ('; COMMIT')`, `UPDATE t SET "a;COMMIT" = $1`,
		`SELECT $$; COMMIT; $$`, `SELECT $a$; COMMIT $$ ; $a$`, `SELECT E'\'; COMMIT'`, `SELECT 'it''s; COMMIT'`,
		`WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x;`, `DELETE FROM t -- ; COMMIT`, `DELETE FROM t /* ; /* COMMIT */ ; COMMIT */`,
		`PREPARE x AS SELECT 1`, `SELECT $1, $2; SELECT 1`, `COMMITTED`, `MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE`, `SELECT 1 AS end`,
	} {
		require.NoError(t, refuseStatement(sql), sql)
	}
	for _, sql := range []string{
		``, ` `, `;;`, `-- nothing`, `/* nothing`,
		`COMMIT`, `commit;`, ` ; Rollback`, "\n\tEND", `/* a */ BEGIN`, "-- a\nSTART TRANSACTION", `abort`, `SAVEPOINT s`, `RELEASE s`,
		`PREPARE TRANSACTION 'x'`, `prepare /* x */ transaction 'x'`, `INSERT INTO t VALUES (1); COMMIT`, `INSERT INTO t VALUES (';'); COMMIT`,
		`SELECT $$a$$; COMMIT`, `SELECT $a$b$a$; COMMIT`, `SELECT $1; COMMIT`, `SELECT E'\\'; COMMIT`, `SELECT "a"; COMMIT`, `SELECT 1 /* ; */; COMMIT`,
		"SELECT 1 -- x\n; COMMIT", `COPY t FROM STDIN`, `copy t to stdout`,
	} {
		require.Error(t, refuseStatement(sql), sql)
	}
}
