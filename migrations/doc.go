// Package migrations installs and removes what package fencing needs in a
// database: the schema fencing with a sequence, a table and a few functions.
//
// [Up] and [Down] run the migrations. [FS] holds them as files for whoever
// prefers to run them with goose. They are for the database in which the
// guarded tables are, and that is also where the locks must be taken:
// advisory locks are local to a database (PostgreSQL manual, section 13.3.5).
//
// The installing role owns the schema. Other roles get what they need to lock
// and to write with SELECT fencing.grant_to('role').
package migrations
