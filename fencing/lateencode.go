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
// The first time that it meets statements on a connection takes a round trip for all of them.
func (s *session) encodes(ctx context.Context, conn *pgx.Conn, statements []*pgx.QueuedQuery) ([]*pgx.QueuedQuery, bool) {
	all := make([]*pgx.QueuedQuery, len(statements))
	for i, q := range statements {
		sql, args, err := rewritten(ctx, conn, q.SQL, q.Arguments)
		if err != nil {
			return nil, false
		}
		all[i] = &pgx.QueuedQuery{SQL: sql, Arguments: args, Fn: q.Fn}
	}
	if s.mode == pgx.QueryExecModeExec {
		return all, true // all is encoded before anything is written
	}
	if !s.describe(ctx, conn, all) {
		return nil, false
	}
	for _, q := range all {
		var builder pgx.ExtendedQueryBuilder
		if err := builder.Build(conn.TypeMap(), s.described[q.SQL], q.Arguments); err != nil {
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

// describe has the server describe statements that are not known. It reports false if one of
// them is wrong, and if they are more than are worth being kept.
func (s *session) describe(ctx context.Context, conn *pgx.Conn, statements []*pgx.QueuedQuery) bool {
	missing := s.missing(statements)
	if len(s.described)+len(missing) > describedMax {
		s.described = nil
		missing = s.missing(statements)
	}
	if len(missing) == 0 {
		return true
	}
	if len(missing) > describedMax {
		return false
	}
	if s.described == nil {
		s.described = map[string]*pgconn.StatementDescription{}
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	for _, sql := range missing {
		pipeline.SendPrepare("", sql, nil)
	}
	err := pipeline.Sync()
	for _, sql := range missing {
		if err != nil {
			break
		}
		var results any
		results, err = pipeline.GetResults()
		if sd, is := results.(*pgconn.StatementDescription); err == nil && is {
			s.described[sql] = sd
		}
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	return err == nil && len(s.missing(statements)) == 0
}

// missing are the statements that are not described, each once.
func (s *session) missing(statements []*pgx.QueuedQuery) []string {
	var missing []string
	seen := map[string]bool{}
	for _, q := range statements {
		if s.described[q.SQL] == nil && !seen[q.SQL] {
			seen[q.SQL] = true
			missing = append(missing, q.SQL)
		}
	}
	return missing
}
