package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestPasses_whatOnlyTheCallerCanMendDoesNot(t *testing.T) {
	t.Parallel()
	for code, passes := range map[string]bool{
		"08006": true, "53200": true, "53300": true, "55P03": true, "57P01": true, "57P03": true, "25006": true, "40001": true,
		"28P01": false, "28000": false, "3D000": false, "3F000": false, "42501": false, "42883": false, "0A000": false,
	} {
		err := fmt.Errorf("lock: %w", &pgconn.PgError{Code: code})
		require.Equal(t, passes, advisory.Passes(err, false), code)
		require.Equal(t, passes, advisory.Passes(err, true), code)
	}
	require.False(t, advisory.Passes(advisory.ErrInvalidKey, true))
	require.False(t, advisory.Passes(advisory.ErrClosed, true))
	require.False(t, advisory.Passes(advisory.ErrPooler, true))
	require.False(t, advisory.Passes(advisory.ErrUnsupportedServer, true))
	require.True(t, advisory.Passes(advisory.ErrStandby, false), "until it is promoted")
	require.True(t, advisory.Passes(advisory.ErrLockTableFull, false))
	require.False(t, advisory.Passes(advisory.ErrPoolExhausted, false))
	require.True(t, advisory.Passes(advisory.ErrPoolExhausted, true))
	require.True(t, advisory.Passes(io.ErrUnexpectedEOF, false))
	require.True(t, advisory.Passes(context.DeadlineExceeded, false), "a deadline of the Locker's own")
	require.True(t, advisory.Passes(errors.New("anything"), false))
}
