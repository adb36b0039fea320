package pgtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Pgpool starts a Pgpool-II in front of the databases, the first of which is that
// of the primary, and returns the URL to connect through it, as the primary's own
// user. mode is its backend_clustering_mode; settings are lines for pgpool.conf. It
// serves 16 clients at a time. It ends with the test, or with this process,
// whichever is first. t is skipped where Pgpool-II is not installed.
func Pgpool(t testing.TB, mode string, databases []*Database, settings ...string) string {
	t.Helper()
	dsns := make([]string, len(databases))
	for i, d := range databases {
		dsns[i] = d.DSN
	}
	r, err := pgpoolRelay(mode, dsns, settings)
	if err != nil {
		t.Skip(err)
	}
	return r.startFor(t)
}

func pgpoolRelay(mode string, dsns, settings []string) (relay, error) {
	program, err := findProgram("Pgpool-II", []string{"pgpool", "/usr/sbin/pgpool", "/usr/local/bin/pgpool", "/opt/homebrew/bin/pgpool"},
		"Debian and Ubuntu: apt-get install pgpool2; Fedora: dnf install postgresql-pgpool-II; macOS: brew install pgpool-ii")
	if err != nil {
		return relay{}, err
	}
	servers := make([]*pgx.ConnConfig, len(dsns))
	for i, dsn := range dsns {
		if servers[i], err = pgx.ParseConfig(dsn); err != nil {
			return relay{}, err
		}
	}
	return relay{
		name: "Pgpool-II", server: servers[0], ports: 2,
		// It has processes of its own to end, and shared memory to remove.
		signal: "QUIT", files: []string{"pgpool.conf", "pcp.conf"},
		command: []string{program, "-n", "-D", "-f", "pgpool.conf", "-F", "pcp.conf"},
		content: func(ports []int) []string { return []string{configForPgpool(mode, servers, ports, settings), ""} },
	}, nil
}

// configForPgpool is the pgpool.conf. Clients give their password in clear, which
// is then used for the servers.
func configForPgpool(mode string, servers []*pgx.ConnConfig, ports []int, settings []string) string {
	lines := []string{
		"backend_clustering_mode = '" + mode + "'",
		"listen_addresses = '127.0.0.1'",
		"port = " + strconv.Itoa(ports[0]),
		"pcp_listen_addresses = '127.0.0.1'",
		"pcp_port = " + strconv.Itoa(ports[1]),
		"unix_socket_directories = '.'",
		"pcp_socket_dir = '.'",
		"pid_file_name = 'pgpool.pid'",
		"logdir = '.'",
		"num_init_children = 16",
		"max_pool = 1",
		"enable_pool_hba = off",
		"allow_clear_text_frontend_auth = on",
		"pool_passwd = ''",
		"sr_check_user = " + quoteSetting(servers[0].User),
		"sr_check_password = " + quoteSetting(servers[0].Password),
		"sr_check_database = " + quoteSetting(servers[0].Database),
		"health_check_period = 0",
		"memqcache_total_size = 2097152",
		"memqcache_max_num_cache = 100",
	}
	for i, server := range servers {
		lines = append(lines,
			fmt.Sprintf("backend_hostname%d = %s", i, quoteSetting(server.Host)),
			fmt.Sprintf("backend_port%d = %d", i, server.Port),
			fmt.Sprintf("backend_weight%d = 1", i),
			fmt.Sprintf("backend_flag%d = 'DISALLOW_TO_FAILOVER'", i))
	}
	return strings.Join(append(lines, settings...), "\n") // of two settings with one name, the later counts
}
