package fencing

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Test for these with errors.Is. The first three are refusals of a write by
// the database; [Lease.InTx] returns them, and [Translate] makes them from the
// errors of transactions that were begun in another way.
var (
	// ErrStale is matched by every [StaleError]: the write carried a token
	// that a newer holder of the resource has superseded, or that was drawn
	// before a failover.
	ErrStale = errors.New("fencing: stale token")

	// ErrUnstamped: the write was to a guarded table, in a transaction that
	// was not stamped for its resource.
	ErrUnstamped = errors.New("fencing: transaction not stamped")

	// ErrUnknownToken: the write carried a token that was never issued for
	// the resource. Roles that may not use the schema fencing get ErrStale instead.
	ErrUnknownToken = errors.New("fencing: token never issued")

	// ErrNotInstalled is returned by everything in this package where the
	// schema fencing is not in the database, or not the one that this version
	// needs; package migrations installs it.
	ErrNotInstalled = errors.New("fencing: not installed in this database")

	// ErrNoSession is returned by [Lease.Tx] if no session of PostgreSQL's holds the
	// lock.
	ErrNoSession = errors.New("fencing: no session of PostgreSQL holds the lock")
)

var errNilContext = errors.New("the context is nil")

// The SQLSTATEs of the refusals.
const (
	codeStale        = "LF001"
	codeUnstamped    = "LF002"
	codeUnknownToken = "LF003"
)

// StaleError is the refusal of a write whose token was superseded: by a newer
// one of its resource, or by the promotion of a standby or the restore of the
// database, which end all locks; Token is not below Current then, as long as
// nobody has taken the lock anew. It matches [ErrStale] and unwraps to the error
// that it was made from. The fields are from the server's DETAIL, and zero where the
// driver does not give that; see [Translate].
type StaleError struct {
	Table    string // with its schema, quoted as SQL needs it
	Resource string
	Token    Token // which the write carried
	Current  Token // which was issued last; 0 if there is none, or the role may not use the schema

	isPromoted bool // or restored
	cause      error
}

// Error describes the refusal.
func (e *StaleError) Error() string {
	if e.Token == 0 && e.cause != nil {
		return fmt.Sprintf("%s: %s", ErrStale, e.cause)
	}
	if e.isPromoted {
		return fmt.Sprintf("fencing: write to %s refused: token %d of resource %q is stale, the server was promoted or the database restored since",
			e.Table, e.Token, e.Resource)
	}
	if e.Current == 0 {
		return fmt.Sprintf("fencing: write to %s refused: token %d of resource %q is stale", e.Table, e.Token, e.Resource)
	}
	return fmt.Sprintf("fencing: write to %s refused: token %d of resource %q is stale, the current one is %d",
		e.Table, e.Token, e.Resource, e.Current)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Unwrap returns the error of the write, in which the server's is.
func (e *StaleError) Unwrap() error { return e.cause }

// Translate returns err with what the database's refusal means, so that
// errors.Is finds [ErrStale], [ErrUnstamped], [ErrUnknownToken] or
// [ErrNotInstalled] in it; other errors are returned as they are. It is for
// errors of statements in a transaction that was stamped with [Stamp], or with
// fencing.stamp by way of another driver.
//
// It knows the server's errors by their method SQLState() string, which those of
// pgx and of lib/pq have. A [StaleError] takes what it tells from a field Detail of
// that error, a string, as both have it.
func Translate(err error) error {
	refusal, ok := errors.AsType[serverError](err)
	if !ok || errors.Is(err, ErrStale) || errors.Is(err, ErrUnstamped) || errors.Is(err, ErrUnknownToken) || errors.Is(err, ErrNotInstalled) {
		return err
	}
	switch refusal.SQLState() {
	case codeStale:
		return newStaleError(refusal, err)
	case codeUnstamped:
		return fmt.Errorf("%w: %w", ErrUnstamped, err)
	case codeUnknownToken:
		return fmt.Errorf("%w: %w", ErrUnknownToken, err)
	}
	if isNotInstalled(refusal) {
		return fmt.Errorf("%w: run migrations.Up: %w", ErrNotInstalled, err)
	}
	return err
}

// serverError is an error of the server, of whichever driver.
type serverError interface {
	error
	SQLState() string
}

// field is a field of the server's error, under the name that drivers give it, and
// empty where there is none.
func field(err serverError, name string) string {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return ""
	}
	f, ok := v.Type().FieldByName(name)
	if !ok || f.Type.Kind() != reflect.String {
		return ""
	}
	value, nilErr := v.FieldByIndexErr(f.Index)
	if nilErr != nil {
		return "" // of something embedded that is nil
	}
	return value.String()
}

// isNotInstalled: no such schema, or no such function in it.
func isNotInstalled(err serverError) bool {
	const noSchema, noFunction = "3F000", "42883"
	switch err.SQLState() {
	case noSchema:
		return strings.Contains(err.Error(), `"fencing"`)
	case noFunction:
		return strings.Contains(err.Error(), " fencing.")
	default:
		return false
	}
}

// newStaleError reads the server's DETAIL, which is token=… current=…
// resource=… table=…, the last two as JSON strings. The second is told to those only
// who may lock.
func newStaleError(refusal serverError, cause error) *StaleError {
	e := &StaleError{cause: cause, isPromoted: strings.Contains(field(refusal, "Hint"), "promoted")}
	tokens, rest, _ := strings.Cut(strings.TrimPrefix(field(refusal, "Detail"), "token="), " resource=")
	token, current, _ := strings.Cut(tokens, " current=")
	e.Token, e.Current = parseToken(token), parseToken(current)
	resource := json.NewDecoder(strings.NewReader(rest))
	if resource.Decode(&e.Resource) == nil {
		table := strings.TrimPrefix(rest[resource.InputOffset():], " table=")
		_ = json.Unmarshal([]byte(table), &e.Table) // from a server of another version it stays empty
	}
	return e
}

func parseToken(s string) Token {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return Token(n)
}
