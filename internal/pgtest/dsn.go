package pgtest

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// urlDSN returns a connection string in URL form: a URL as it is, and settings
// in keyword/value form as the URL that means the same.
func urlDSN(dsn string) (string, error) {
	// Its errors, unlike those of package url, don't show the password.
	if _, err := pgx.ParseConfig(dsn); err != nil {
		return "", err
	}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return dsn, nil
	}
	settings, err := parseKeywords(dsn)
	if err != nil {
		return "", err
	}

	u := url.URL{Scheme: "postgres", Path: "/" + take(settings, "dbname")}
	if user := take(settings, "user"); user != "" {
		u.User = url.User(user)
		if password := take(settings, "password"); password != "" {
			u.User = url.UserPassword(user, password)
		}
	}
	// Socket folders and lists of hosts have a place in the query only.
	if host := settings["host"]; host != "" && !strings.ContainsAny(host, "/,@") {
		u.Host = take(settings, "host")
		if port := take(settings, "port"); port != "" {
			u.Host = net.JoinHostPort(u.Host, port)
		} else if strings.Contains(u.Host, ":") {
			u.Host = "[" + u.Host + "]"
		}
	}
	query := url.Values{}
	for key, value := range settings {
		query.Set(key, value)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// withDatabase returns the URL dsn with another database and nothing else
// changed.
func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("connection URL can't be parsed") // err would show it
	}
	u.Path, u.RawPath = "/"+name, ""
	query := u.Query()
	if query.Has("dbname") || query.Has("database") {
		// Either one would win over the path.
		query.Del("dbname")
		query.Del("database")
		u.RawQuery = query.Encode()
	}
	return u.String(), nil
}

// withParameter returns the URL dsn with another value of a parameter.
func withParameter(dsn, name, value string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("connection URL can't be parsed") // err would show it
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// parseKeywords reads the keyword/value form: key = value, where a value with
// spaces is in single quotes and a backslash takes the next character as it is.
func parseKeywords(dsn string) (map[string]string, error) {
	settings := map[string]string{}
	for rest := strings.TrimSpace(dsn); rest != ""; rest = strings.TrimSpace(rest) {
		key, after, found := strings.Cut(rest, "=")
		if !found {
			return nil, errors.New("keyword without a value in the connection string")
		}
		key = strings.TrimSpace(key)
		if key == "database" {
			key = "dbname"
		}
		settings[key], rest = parseValue(strings.TrimSpace(after))
	}
	return settings, nil
}

// parseValue reads one value and returns what follows it.
func parseValue(text string) (value, rest string) {
	var b strings.Builder
	quoted := strings.HasPrefix(text, "'")
	if quoted {
		text = text[1:]
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case quoted && c == '\'', !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			return b.String(), text[i+1:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// take removes a setting and returns what it was.
func take(settings map[string]string, key string) string {
	value := settings[key]
	delete(settings, key)
	return value
}
