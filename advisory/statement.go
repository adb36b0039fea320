package advisory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// try tries the lock. Like runScript it returns nil when it is not granted.
func try(ctx context.Context, conn *pgx.Conn, t tag) (*int64, error) {
	var granted bool
	if err := conn.QueryRow(ctx, trySQL(t), t.args()...).Scan(&granted); err != nil || !granted {
		return nil, err
	}
	return new(int64(1)), nil
}

// runScript runs a script and returns what it selects, or nil for NULL.
func runScript(ctx context.Context, conn *pgx.Conn, script string) (*int64, error) {
	results, err := conn.PgConn().Exec(ctx, script).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) < 2 {
		return nil, fmt.Errorf("the server answered %d of the statements", len(results))
	}
	rows := results[len(results)-2].Rows // the last is COMMIT
	if len(rows) != 1 || len(rows[0]) != 1 {
		return nil, fmt.Errorf("the server answered with %d rows", len(rows))
	}
	text := rows[0][0]
	if text == nil {
		return nil, nil
	}
	receipt, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the server's receipt: %w", err)
	}
	return &receipt, nil
}

func clearSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, clearSQL)
	return err
}
