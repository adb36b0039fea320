package gate

import (
	"context"
	"errors"
	"net/http"
	"strconv"
)

// Header is the header of a request that carries its token, as a decimal number.
const Header = "Fencing-Token"

// Handler lets the requests through to next whose token is not stale for the resource
// that resourceOf finds in them. Others get 409 Conflict for a stale token, with the
// highest in the header Fencing-Token; 428 Precondition Required without a token; 400 for
// one that is none; 503 if the marks can't be read or written, or the client went
// away while the request waited. next is called while no request with a higher token runs.
func (g *Gate) Handler(resourceOf func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get(Header)
		if text == "" {
			http.Error(w, "a request needs the header "+Header, http.StatusPreconditionRequired)
			return
		}
		token, err := strconv.ParseInt(text, 10, 64)
		if err != nil || token <= 0 {
			http.Error(w, Header+" is a number from 1 on", http.StatusBadRequest)
			return
		}
		err = g.Do(r.Context(), resourceOf(r), token, func(ctx context.Context) error {
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		var stale *StaleError
		switch {
		case err == nil:
		case errors.As(err, &stale):
			w.Header().Set(Header, strconv.FormatInt(stale.Current, 10))
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			http.Error(w, "the fencing token can't be checked", http.StatusServiceUnavailable)
		}
	})
}
