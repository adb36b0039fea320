// Package traptest sets traps for SQL that looks names up where others can put
// objects. In the schema evil every function, operator, type and relation of
// pg_catalog has one of the same name, for sessions whose search_path begins with
// it. In public the functions and operators that the project's SQL names, or may
// mean, have others whose arguments fit better: the server prefers those although
// pg_catalog comes first.
//
// A trap does what the original does, so that nothing else changes, and leaves a
// trace in the server's statistics, which also stays if the transaction fails or
// only reads.
package traptest
