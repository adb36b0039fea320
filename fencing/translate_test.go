package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestTranslate_leavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, fencing.Translate(nil))
	for _, err := range []error{
		errWork,
		pgx.ErrNoRows,
		&pgconn.PgError{Code: "40001", Message: "could not serialize access"},
		&pgconn.PgError{Code: "42P01", Message: `relation "fencing_log" does not exist`},
		&pgconn.PgError{Code: "3F000", Message: `schema "archive" does not exist`},
		&pgconn.PgError{Code: "42883", Message: `function work() does not exist`},
		&pgconn.PgError{Code: "42883", Message: `function price_of_fencing(integer) does not exist`},
		&pgconn.PgError{Code: "3F000", Message: `schema "fencing_club" does not exist`},
		fmt.Errorf("row 17: %w", &pgconn.PgError{Code: "23505", Message: "duplicate key"}),
	} {
		require.Equal(t, err, fencing.Translate(err))
		require.NotErrorIs(t, fencing.Translate(err), fencing.ErrNotInstalled)
	}
}

// refusals are an error of the server for each sentinel.
var refusals = map[error]*pgconn.PgError{
	fencing.ErrStale: {
		Code: "LF001", SchemaName: "public", TableName: "exports", Detail: `token=1 current=2 resource="nightly"`,
	},
	fencing.ErrUnstamped:    {Code: "LF002"},
	fencing.ErrUnknownToken: {Code: "LF003"},
	fencing.ErrNotInstalled: {Code: "3F000", Message: `schema "fencing" does not exist`},
}

func TestTranslate_isIdempotent(t *testing.T) {
	t.Parallel()
	for sentinel, refusal := range refusals {
		once := fencing.Translate(refusal)
		require.ErrorIs(t, once, sentinel)
		requireCode(t, once, refusal.Code)
		require.Equal(t, once, fencing.Translate(once))
		wrapped := fmt.Errorf("row 17: %w", once)
		require.Equal(t, wrapped, fencing.Translate(wrapped))
	}
}

// What a caller has put around the server's error is still there afterwards.
func TestTranslate_keepsWhatIsAroundTheServersError(t *testing.T) {
	t.Parallel()
	for sentinel, refusal := range refusals {
		err := fencing.Translate(fmt.Errorf("row 17: %w", errors.Join(refusal, errWork)))
		require.ErrorIs(t, err, sentinel)
		requireCode(t, err, refusal.Code)
		require.ErrorIs(t, err, errWork, "%v", sentinel)
	}
}

// An old client may meet a server whose details it does not know.
func TestTranslate_readsWhatItCanOfAStaleError(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]fencing.StaleError{
		``:                                      {},
		`token=1 current=2`:                     {Token: 1, Current: 2},
		`token=x current=y`:                     {},
		`something else`:                        {},
		`token=1 current=2 resource="a b" more`: {Token: 1, Current: 2, Resource: "a b"},
		`token=1 current=2 resource="a \" current=9 \u00e9" table="\"t t\".exports"`: {
			Token: 1, Current: 2, Resource: `a " current=9 é`, Table: `"t t".exports`,
		},
	} {
		var stale *fencing.StaleError
		err := fencing.Translate(&pgconn.PgError{Code: "LF001", SchemaName: "public", TableName: "exports", Detail: detail})
		require.ErrorAs(t, err, &stale, detail)
		require.Equal(t, want.Table, stale.Table, detail)
		require.Equal(t, want.Resource, stale.Resource, detail)
		require.Equal(t, want.Token, stale.Token, detail)
		require.Equal(t, want.Current, stale.Current, detail)
	}
}

// Errors of drivers that are not pgx, as they have them.
type (
	pointerError struct{ Code, Message, Detail string }
	valueError   struct{ Code, Message, Detail string }
	wrapperError struct{ *pointerError } // of an application, say
	bareError    string                  // without fields
)

func (e *pointerError) Error() string    { return "driver: " + e.Message }
func (e *pointerError) SQLState() string { return e.Code }
func (e valueError) Error() string       { return "driver: " + e.Message }
func (e valueError) SQLState() string    { return e.Code }
func (e bareError) Error() string        { return "driver: refused" }
func (e bareError) SQLState() string     { return string(e) }

func TestTranslate_knowsTheErrorsOfOtherDrivers(t *testing.T) {
	t.Parallel()
	const detail = `token=1 current=2 resource="nightly" table="public.exports"`
	for name, driver := range map[string]func(code, message, detail string) error{
		"pointer": func(code, message, detail string) error { return &pointerError{code, message, detail} },
		"value":   func(code, message, detail string) error { return valueError{code, message, detail} },
		"wrapper": func(code, message, detail string) error {
			return &wrapperError{&pointerError{code, message, detail}}
		},
	} {
		var stale *fencing.StaleError
		err := fmt.Errorf("row 17: %w", driver("LF001", "stale", detail))
		translated := fencing.Translate(err)
		require.ErrorAs(t, translated, &stale, name)
		require.Equal(t, "public.exports nightly 1 2", fmt.Sprint(stale.Table, " ", stale.Resource, " ", stale.Token, " ", stale.Current), name)
		require.ErrorIs(t, translated, err)
		require.Equal(t, translated, fencing.Translate(translated))
		require.ErrorIs(t, fencing.Translate(driver("LF002", "", "")), fencing.ErrUnstamped, name)
		require.ErrorIs(t, fencing.Translate(driver("LF003", "", "")), fencing.ErrUnknownToken, name)
		require.ErrorIs(t, fencing.Translate(driver("3F000", `schema "fencing" does not exist`, "")), fencing.ErrNotInstalled, name)
		other := driver("3F000", `schema "archive" does not exist`, "")
		require.Equal(t, other, fencing.Translate(other), name)
	}
}

// What the driver does not tell is not made up.
func TestTranslate_ofADriverThatGivesNoDetail(t *testing.T) {
	t.Parallel()
	for _, err := range []error{bareError("LF001"), &pointerError{Code: "LF001", Message: "refused"}, &struct {
		bareError
		Detail int
	}{bareError: "LF001"}} {
		translated := fencing.Translate(err)
		require.ErrorIs(t, translated, fencing.ErrStale)
		require.EqualError(t, translated, "fencing: stale token: driver: refused")
		var stale *fencing.StaleError
		require.ErrorAs(t, translated, &stale)
		require.Zero(t, stale.Token)
		require.Empty(t, stale.Resource)
	}
}
