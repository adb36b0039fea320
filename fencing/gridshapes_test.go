package fencing_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// shapes are what can belong to a guarded table x.
var shapes = map[string]struct {
	before string // makes x
	after  string // runs when x has been guarded
	target string // is written to
	open   []string
}{
	"plain":              {`CREATE TABLE x ` + columnsSQL, ``, `x`, nil},
	"partitioned parent": {partitionedSQL + partSQL, ``, `x`, nil},
	"leaf":               {partitionedSQL + partSQL, ``, `part`, nil},
	"leaf of a leaf":     {partitionedSQL + middleSQL + `; CREATE TABLE part PARTITION OF middle DEFAULT`, ``, `part`, nil},
	"leaf attached later": {
		partitionedSQL, `CREATE TABLE part ` + columnsSQL + `; ALTER TABLE x ATTACH PARTITION part DEFAULT`,
		`part`,
		[]string{"TRUNCATE"},
	},
	"leaf attached below later": {
		partitionedSQL + middleSQL, `CREATE TABLE part PARTITION OF middle DEFAULT`,
		`part`,
		[]string{"TRUNCATE"},
	},
	"parent of a leaf attached later": {
		partitionedSQL, `CREATE TABLE part PARTITION OF x DEFAULT`,
		`x`, nil,
	},
	"inheritance parent": {`CREATE TABLE x ` + columnsSQL + childSQL, ``, `x`, nil},
	"inherited child":    {`CREATE TABLE x ` + columnsSQL + childSQL, ``, `part`, nil},
	"child added later": {
		`CREATE TABLE x ` + columnsSQL, childSQL, `part`,
		[]string{
			"COPY", "DELETE", "FOREIGN KEY", "INSERT", "MERGE", "MERGE that deletes", "ON CONFLICT DO UPDATE",
			"TRUNCATE", "UPDATE", "VIEW", "WRITABLE CTE",
		},
	},
}

const (
	columnsSQL     = `(id int, batch int, note text, PRIMARY KEY (id))`
	partitionedSQL = `CREATE TABLE x ` + columnsSQL + ` PARTITION BY RANGE (id)`
	partSQL        = `; CREATE TABLE part PARTITION OF x DEFAULT`
	middleSQL      = `; CREATE TABLE middle PARTITION OF x DEFAULT PARTITION BY RANGE (id)`
	childSQL       = `; CREATE TABLE part (PRIMARY KEY (id)) INHERITS (x)`
	rowsSQL        = `INSERT INTO %s VALUES (1, 1, 'one'), (2, 2, 'two')`

	// aroundSQL is by what the target is written to in other ways.
	aroundSQL = `CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2);
		ALTER TABLE %[1]s ADD FOREIGN KEY (batch) REFERENCES parent ON DELETE CASCADE;
		CREATE VIEW v AS SELECT id, note FROM %[1]s WHERE id > 0`
)

// writes are the ways to write. Each of them changes something.
var writes = map[string]wayToWrite{
	"INSERT":   {sql: `INSERT INTO %s VALUES (3, 1, 'three')`},
	"UPDATE":   {sql: `UPDATE %s SET note = 'changed' WHERE id = 1`},
	"DELETE":   {sql: `DELETE FROM %s WHERE id = 2`},
	"TRUNCATE": {sql: `TRUNCATE %s`},
	"COPY":     {sql: `COPY %s FROM STDIN`, data: "3\t1\tthree\n4\t2\tfour\n"},
	"MERGE": {since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (1), (3)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, 'merged')`},
	"MERGE that deletes": {since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (1)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN DELETE`},
	"ON CONFLICT DO UPDATE": {sql: `INSERT INTO %s VALUES (1, 1, 'again') ON CONFLICT (id) DO UPDATE SET note = excluded.note`},
	"FOREIGN KEY":           {sql: `DELETE FROM parent WHERE id = 2 AND '%s' <> ''`},
	"WRITABLE CTE":          {sql: `WITH gone AS (DELETE FROM %s WHERE id = 1 RETURNING id) SELECT count(*) FROM gone`},
	"VIEW":                  {sql: `UPDATE v SET note = 'by way of a view of %s'`},
}

type wayToWrite struct {
	since int    // the first server_version_num that has it
	sql   string // with the table
	data  string // that follows, for COPY
}

func (w wayToWrite) run(ctx context.Context, conn *pgx.Conn, target string) error {
	sql := fmt.Sprintf(w.sql, target)
	if w.data != "" {
		_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(w.data), sql)
		return err
	}
	_, err := conn.Exec(ctx, sql)
	return err
}
