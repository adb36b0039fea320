package lockproto

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Config is how a Locker talks to its sessions.
type Config struct {
	AnswerTimeout time.Duration // for the server's answer, beyond what it is to wait
	VanishTimeout time.Duration // until the server gives up a client that vanished
	Owned         bool          // the sessions are of a pool that serves nobody else
	// CheckPooler returns the reason why no lock can be held on a session whose handshake
	// told another process ID than pid, its backend's.
	CheckPooler func(ctx context.Context, hold *connhold.Hold, pid uint32) error
}

// Session is the conversation with one session, from when its connection is pinned. It is
// not safe for concurrent use.
type Session struct {
	config *Config
	hold   *connhold.Hold
	info   *info // nil until it is probed and set up
	texts  *texts
	// application is the application_name from before it was set.
	application string

	place  int  // the last one that it asked for while it was parked
	isNear bool // and has got
}

// Open begins the conversation with the session of a connection that was just pinned.
func Open(hold *connhold.Hold, config *Config) Session {
	s := Session{config: config, hold: hold}
	s.use(freshInfoOf(hold))
	return s
}

// Adopt goes on with the session of a connection that a holder has just released.
func Adopt(hold *connhold.Hold, config *Config) Session {
	s := Session{config: config, hold: hold}
	s.use(infoOf(hold))
	return s
}

// use goes by what is known of the session, if it has been set up for this Config too.
func (s *Session) use(known *info) {
	if known != nil {
		if t, ok := known.texts[s.config.VanishTimeout]; ok {
			s.info, s.texts = known, t
		}
	}
}

// Invalidate has the session probed again before it is asked for locks.
func (s *Session) Invalidate() {
	Invalidate(s.hold)
	s.info, s.texts = nil, nil
}

// Hold is the connection; nil for the zero Session.
func (s *Session) Hold() *connhold.Hold { return s.hold }

// PID is the process ID of the backend.
func (s *Session) PID() uint32 { return s.info.pid }

// UseFastPath reports whether Try can answer r, and Script is not needed.
func (s *Session) UseFastPath(r *Request) bool {
	return r.Slots == nil && (r.Issue.IsZero() || !s.texts.needsScript)
}

// Release frees locks, puts the settings back, and reports whether the session had held
// the locks until then.
func (s *Session) Release(ctx context.Context, limit time.Duration, targets []lockid.Target) (owned bool, err error) {
	v := variantOf(targets, "")
	answer, err := s.hold.RoundTrip(context.WithoutCancel(ctx), limit, s.texts.release(s.hold, v), parametersOf(targets, true, s.application)...)
	return answer == answerTrue, err
}

// Clear frees whatever the session holds and puts its settings back.
func (s *Session) Clear(ctx context.Context, limit time.Duration) error {
	return s.hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, s.texts.clear(s.application))
		return err
	})
}

// BeginSQL begins a transaction in which the server looks for its client while it works
// on a statement.
func (s *Session) BeginSQL(options pgx.TxOptions) string {
	begin := options.BeginQuery
	if begin == "" {
		begin = strings.Join(slices.DeleteFunc([]string{
			"BEGIN", isolation(options.IsoLevel), string(options.AccessMode), string(options.DeferrableMode),
		}, func(s string) bool { return s == "" }), " ")
	}
	return begin + s.texts.afterBegin
}

func isolation(level pgx.TxIsoLevel) string {
	if level == "" {
		return ""
	}
	return "ISOLATION LEVEL " + string(level)
}

// IsAbandoned reports whether a Try was abandoned before the server answered.
func IsAbandoned(err error) bool { return errors.Is(err, connhold.ErrAbandoned) }
