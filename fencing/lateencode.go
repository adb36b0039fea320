package fencing

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is what is known of a connection and costs something to find out.
type session struct {
	mode   pgx.QueryExecMode // by default
	traced bool
	// described are statements. pgx knows them too, and does not tell.
	described map[string]*pgconn.StatementDescription
}

const (
	sessionKey   = stampingKey + ".session"
	describedMax = 512 // as many as pgx keeps by default
)

func sessionOf(conn *pgx.Conn) *session {
	data := conn.PgConn().CustomData()
	s, ok := data[sessionKey].(*session)
	if !ok {
		config := conn.Config()
		s = &session{mode: config.DefaultQueryExecMode, traced: config.Tracer != nil}
		data[sessionKey] = s
	}
	return s
}

// encodes returns statements as a batch takes them, and whether their arguments can be encoded.
// If they can't, pgx finds out when it has begun to write the batch, and has to close the
// connection. Alone, such a statement does no harm.
//
// The first time that it meets a statement on a connection takes a round trip.
func (s *session) encodes(ctx context.Context, conn *pgx.Conn, statements []*pgx.QueuedQuery) ([]*pgx.QueuedQuery, bool) {
	all := make([]*pgx.QueuedQuery, len(statements))
	for i, q := range statements {
		sql, args, err := rewritten(ctx, conn, q.SQL, q.Arguments)
		if err != nil {
			return nil, false
		}
		all[i] = &pgx.QueuedQuery{SQL: sql, Arguments: args, Fn: q.Fn}
		if s.mode == pgx.QueryExecModeExec {
			continue // all is encoded before anything is written
		}
		sd, err := s.describe(ctx, conn, sql)
		if err != nil {
			return nil, false
		}
		var builder pgx.ExtendedQueryBuilder
		if err := builder.Build(conn.TypeMap(), sd, args); err != nil {
			return nil, false
		}
	}
	return all, true
}

// rewritten is a statement as pgx makes it of one whose first argument is a QueryRewriter.
func rewritten(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if len(args) > 0 {
		if rewriter, is := args[0].(pgx.QueryRewriter); is {
			return rewriter.RewriteQuery(ctx, conn, sql, args[1:])
		}
	}
	return sql, args, nil
}

func (s *session) describe(ctx context.Context, conn *pgx.Conn, sql string) (*pgconn.StatementDescription, error) {
	if sd := s.described[sql]; sd != nil {
		return sd, nil
	}
	sd, err := conn.Prepare(ctx, "", sql)
	if err != nil {
		return nil, err
	}
	if s.described == nil || len(s.described) >= describedMax {
		s.described = map[string]*pgconn.StatementDescription{}
	}
	s.described[sql] = sd
	return sd, nil
}
