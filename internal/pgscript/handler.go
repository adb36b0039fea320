package pgscript

import (
	"strings"
	"sync"
)

// A Query is one statement that a client has sent.
type Query struct {
	SQL     string
	Args    []any // of the extended protocol; nil while Describing
	Session int   // 1 for the server's first session, and so on

	// Describing is set when the client only asks which columns the statement
	// returns. A handler answers as it would if it ran, and counts nothing.
	Describing bool
}

// A Handler returns the answer to a statement, or nil to leave it to the next
// handler. Sessions call it concurrently.
type Handler func(Query) *Answer

// On answers statements that contain text: the first one that is run with the
// first answer, the second with the second, and so on, in all sessions together;
// the last answer stays. A nil answer leaves the statement to the next handler.
func On(text string, answers ...*Answer) Handler {
	var mu sync.Mutex // guards next
	next := 0
	return func(q Query) *Answer {
		if !strings.Contains(q.SQL, text) || len(answers) == 0 {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		answer := answers[next]
		if !q.Describing {
			next = min(next+1, len(answers)-1)
			return answer
		}
		// What fails has no columns; an answer that is still to come may.
		for _, later := range answers[next:] {
			if later.describes() {
				return later
			}
		}
		return answer
	}
}
