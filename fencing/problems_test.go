package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// problems are what Verify says of a table, or, without one, of the
// installation.
func problems(t *testing.T, db fencing.Querier, table string) []fencing.Problem {
	t.Helper()
	report, err := fencing.Verify(t.Context(), db)
	require.NoError(t, err)
	found := report.Problems
	if table != "" {
		found = nil
	}
	for _, r := range report.Tables {
		if r.Table == table {
			found = r.Problems
		}
	}
	require.Equal(t, report.OK(), len(report.Problems) == 0 && !hasProblems(report.Tables))
	return found
}

func hasProblems(tables []fencing.TableReport) bool {
	for _, table := range tables {
		if len(table.Problems) > 0 {
			return true
		}
	}
	return false
}

// requireProblem is that Verify finds one problem, and how it is mended.
func requireProblem(t *testing.T, db fencing.Querier, table, what, fix string) {
	t.Helper()
	found := problems(t, db, table)
	require.Len(t, found, 1, "%v", found)
	require.Contains(t, found[0].What, what)
	require.Equal(t, fix, found[0].Fix)
}
