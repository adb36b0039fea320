// Package connect finds the database, as psql does, and says what went wrong
// without ever saying a password.
//
// The first of these that is given counts: --dsn, DATABASE_URL, and libpq's
// variables (PGHOST, PGSERVICE, ...) with its defaults. Libpq's variables also
// fill in what the others leave open, and so do the service file and the
// password file.
package connect
