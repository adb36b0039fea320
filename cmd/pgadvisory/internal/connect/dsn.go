package connect

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DatabaseURL is the variable that is read when no --dsn is given.
const DatabaseURL = "DATABASE_URL"

// Application is the application_name where the user has not set one.
const Application = "pgadvisory"

// timeout bounds the making of a connection unless connect_timeout is given.
const timeout = 10 * time.Second

// ErrPassword is returned for a --dsn with a password in it.
var ErrPassword = errors.New("a password in --dsn would be shown to everybody on this machine by the process list: " +
	"give it by PGPASSWORD, the password file (~/.pgpass) or DATABASE_URL")

// ErrConfig is matched by errors about the settings of the connection.
var ErrConfig = errors.New("the connection settings are wrong")

// Config returns the settings of a pool of one connection for a connection
// string, and for those of the environment if that is empty.
func Config(dsn string) (*pgxpool.Config, error) {
	if hasPassword(dsn) {
		return nil, ErrPassword
	}
	source := "--dsn"
	if dsn == "" {
		dsn, source = os.Getenv(DatabaseURL), DatabaseURL
	}
	if dsn == "" {
		source = "the environment"
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrConfig, source, withoutString(err))
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = timeout
	}
	params := config.ConnConfig.RuntimeParams
	// libpq's; the server knows only the other.
	params["application_name"] = cmp.Or(params["application_name"], params["fallback_application_name"], Application)
	delete(params, "fallback_application_name")
	return config, nil
}

// passwordSetting finds a password among keywords and values. It would also find
// one in a quoted value, which is refused for no good reason then, but safely.
var passwordSetting = regexp.MustCompile(`(?i)(^|[\s'])(ssl)?password\s*=`)

// hasPassword reports whether a connection string has a password in it. It does
// not trust the string to be valid.
func hasPassword(dsn string) bool {
	_, rest, isURL := strings.Cut(dsn, "://")
	if !isURL {
		return passwordSetting.MatchString(dsn)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok && password != "" {
			return true
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(key); err == nil {
			key = decoded
		}
		if strings.Contains(strings.ToLower(key), "password") {
			return true
		}
	}
	return false
}

// withoutString is what is wrong with a connection string, without the string:
// pgx takes out the passwords that it finds, but what is broken may hide one. Of
// what it quotes besides, only the names of services and files are passed on.
func withoutString(err error) string {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return err.Error()
	}
	message := ""
	if end := strings.LastIndex(err.Error(), "`: "); end >= 0 {
		message = err.Error()[end+len("`: "):]
	}
	switch what, detail, _ := strings.Cut(message, " ("); what {
	case "failed to read service", "failed to configure TLS":
		return what + ": " + strings.TrimSuffix(detail, ")")
	case "":
		return "they can't be read"
	default:
		return what
	}
}
