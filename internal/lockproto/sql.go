package lockproto

import (
	"encoding/hex"
	"fmt"
)

// cleared releases whatever a session holds, without a warning for what it does not
// hold, and is true.
const cleared = "pg_catalog.pg_advisory_unlock_all()::pg_catalog.text OPERATOR(pg_catalog.=) ''"

// setConfig is an SQL expression that sets a setting for the session and is true.
func setConfig(name, value string) string {
	return fmt.Sprintf("pg_catalog.set_config('%s', %s, false) IS NOT NULL", name, value)
}

// literal is a value of a setting in SQL.
func literal(value string) string {
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return hexText(value)
		}
	}
	return "'" + value + "'"
}

// hexText is a text of ASCII in SQL, spelled so that no setting of the session decides
// how the server reads it, and no conversion between encodings is needed.
func hexText(s string) string {
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%s', 'hex'), 'SQL_ASCII')", hex.EncodeToString([]byte(s)))
}
