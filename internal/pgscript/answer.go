package pgscript

// An Answer is what a client gets for one statement. Its methods return changed
// copies.
type Answer struct {
	row     []Value
	tag     string
	failure *failure
	end     end

	after      <-chan struct{}
	notices    int
	parameters [][2]string
	status     byte
}

// failure is an error of the server.
type failure struct{ severity, code, message string }

// end is what becomes of the connection.
type end int

const (
	endNot   end = iota // it is ready for the next statement
	endHang             // nothing more is sent
	endClose            // the socket is closed
)

// Row answers with one row.
func Row(values ...Value) *Answer { return &Answer{row: values, tag: "SELECT 1"} }

// Done answers that a command was carried out: "SET", "INSERT 0 1".
func Done(tag string) *Answer { return &Answer{tag: tag} }

// Fail answers with an error. It aborts the transaction, if there is one, and
// what is left of a script.
func Fail(code, message string) *Answer {
	return &Answer{failure: &failure{"ERROR", code, message}}
}

// Fatal answers with an error that ends the session, as 57P01 does.
func Fatal(code, message string) *Answer {
	return &Answer{failure: &failure{"FATAL", code, message}, end: endClose}
}

// Hang never answers; the socket stays open until the client closes it or the
// test ends.
func Hang() *Answer { return &Answer{end: endHang} }

// Close closes the socket instead of answering.
func Close() *Answer { return &Answer{end: endClose} }

// After holds the answer, with all that belongs to it, back until c is closed.
func (a Answer) After(c <-chan struct{}) *Answer {
	a.after = c
	return &a
}

// Notices sends n notices before the answer, or, if n is negative, notices
// without an end instead of it.
func (a Answer) Notices(n int) *Answer {
	a.notices = n
	return &a
}

// Parameter reports a new value of a setting before the answer.
func (a Answer) Parameter(name, value string) *Answer {
	a.parameters = append(a.parameters[:len(a.parameters):len(a.parameters)], [2]string{name, value})
	return &a
}

// Status has the session report a transaction status from now on: 'I' for none,
// 'T' for one that runs, 'E' for one that failed. Without it the status follows
// from the answers to BEGIN, COMMIT and ROLLBACK, and from errors.
func (a Answer) Status(status byte) *Answer {
	a.status = status
	return &a
}

// describes reports whether the answer tells which columns a statement has.
func (a *Answer) describes() bool { return a != nil && a.failure == nil && a.end == endNot }
