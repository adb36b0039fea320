package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// service is an engine or a managed service that is built on PostgreSQL.
type service struct {
	name string
	// One of these is there. Every role may read them.
	version   string // in version()
	function  string // in pg_catalog
	setting   string // with a value
	extension string
	role      string
	// makers are the roles whose members may create event triggers although they are
	// no superusers.
	makers []string
	// note is what else to know of it.
	note, fix string
}

// services are looked for in this order: some have the marks of others too.
var services = []service{
	{
		name: "CockroachDB", version: "CockroachDB",
		note: "its advisory locks are no-ops", fix: "use PostgreSQL",
	},
	{
		name: "YugabyteDB", version: "-YB-",
		note: "it has another storage than PostgreSQL: neither locks nor fencing are tested with it", fix: "use PostgreSQL",
	},
	{name: "Greenplum", version: "Greenplum"},
	{name: "EDB Postgres Advanced Server", version: "EnterpriseDB"},
	{name: "Amazon Aurora", function: "aurora_version", makers: []string{"rds_superuser"}},
	{name: "Amazon RDS", role: "rdsadmin", makers: []string{"rds_superuser"}},
	{name: "Neon", setting: "neon.timeline_id", makers: []string{"neon_superuser"}},
	{name: "Neon", role: "neon_superuser", makers: []string{"neon_superuser"}},
	{name: "Supabase", role: "supabase_admin", makers: []string{"postgres"}},
	{name: "Azure Database for PostgreSQL", setting: "azure.extensions", makers: []string{"azure_pg_admin"}},
	{name: "Azure Database for PostgreSQL", role: "azure_pg_admin", makers: []string{"azure_pg_admin"}},
	{name: "Google AlloyDB", role: "alloydbadmin"},
	{name: "Google Cloud SQL", role: "cloudsqladmin"},
	{name: "Aiven for PostgreSQL", role: "avnadmin"},
	{name: "DigitalOcean Managed PostgreSQL", role: "doadmin"},
	{
		name: "Citus", extension: "citus",
		note: "it has no triggers of statements on distributed tables: these can't be guarded", fix: "guard local tables only",
	},
}

// evidence says by what a service is known.
func (s service) evidence() string {
	switch {
	case s.version != "":
		return "its version()"
	case s.function != "":
		return "the function " + s.function
	case s.setting != "":
		return "the setting " + s.setting
	case s.extension != "":
		return "the extension " + s.extension
	default:
		return "the role " + s.role
	}
}

// servicesSQL tells which of the marks are there.
const servicesSQL = `SELECT version(),
	ARRAY(SELECT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ($1)),
	ARRAY(SELECT s FROM unnest($2::text[]) s WHERE current_setting(s, true) <> ''),
	ARRAY(SELECT extname::text FROM pg_extension WHERE extname = ANY ($3)),
	ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname = ANY ($4))`

// servicesOf finds what the server is. There can be several: an extension on a
// managed service.
func servicesOf(ctx context.Context, db pgx.Tx) ([]service, error) {
	var functions, settings, extensions, roles []string
	for _, s := range services {
		functions, settings = append(functions, s.function), append(settings, s.setting)
		extensions, roles = append(extensions, s.extension), append(roles, s.role)
	}
	isNone := func(mark string) bool { return mark == "" }
	var version string
	err := db.QueryRow(ctx, servicesSQL, slices.DeleteFunc(functions, isNone), slices.DeleteFunc(settings, isNone),
		slices.DeleteFunc(extensions, isNone), slices.DeleteFunc(roles, isNone)).Scan(&version, &functions, &settings, &extensions, &roles)
	if err != nil {
		return nil, err
	}
	var found []service
	hosted := false
	for _, s := range services {
		isThere := s.version != "" && strings.Contains(version, s.version) || slices.Contains(functions, s.function) ||
			slices.Contains(settings, s.setting) || slices.Contains(extensions, s.extension) || slices.Contains(roles, s.role)
		if !isThere || hosted && s.extension == "" {
			continue
		}
		hosted = hosted || s.extension == ""
		found = append(found, s)
	}
	return found, nil
}

// engine names what the server is built on and who runs it, as far as it shows.
func engine(ctx context.Context, r *Report, db pgx.Tx) error {
	found, err := servicesOf(ctx, db)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		r.ok("the engine is PostgreSQL; nothing shows a managed service")
	}
	for _, s := range found {
		if s.note == "" {
			r.ok("this is %s, as %s shows", s.name, s.evidence())
		} else {
			r.note(s.fix, "this is %s, as %s shows: %s", s.name, s.evidence(), s.note)
		}
	}
	return nil
}

// eventTriggersSQL tells whether one completes the guards, and who is asking.
const eventTriggersSQL = `SELECT
	EXISTS (SELECT FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid
		WHERE p.proname = 'on_ddl' AND p.pronamespace = to_regnamespace('fencing') AND e.evtenabled <> 'D'),
	(SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
	ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY ($1) AND pg_has_role(r.oid, 'USAGE'))`

// eventTriggers looks whether what is added to a guarded table is guarded by itself,
// or could be. It does not try to create an event trigger: doctor changes nothing.
func eventTriggers(ctx context.Context, r *Report, db pgx.Tx) error {
	found, err := servicesOf(ctx, db)
	if err != nil {
		return err
	}
	var makers []string
	for _, s := range found {
		makers = append(makers, s.makers...)
	}
	var exists, super bool
	var memberOf []string
	if err := db.QueryRow(ctx, eventTriggersSQL, makers).Scan(&exists, &super, &memberOf); err != nil {
		return err
	}
	const otherwise = "guard a table again after adding a partition or a child"
	switch {
	case exists:
		r.ok("an event trigger guards what is added to guarded tables")
	case super:
		r.ok("this role can create event triggers, as a superuser; none guards what is added to guarded tables, see docs/fencing.md")
	case len(memberOf) > 0:
		r.ok("this role can create event triggers, as a member of %s on %s; none guards what is added to guarded tables, see docs/fencing.md",
			shellWord(memberOf[0]), found[0].name)
	case len(makers) > 0:
		r.note("create it as a member of "+makers[0]+", or "+otherwise, "this role can't create event triggers; on %s members of %s can", found[0].name, makers[0])
	default:
		r.note(otherwise+", or have a superuser create the event trigger of docs/fencing.md",
			"this role can't create event triggers: only a superuser can")
	}
	return nil
}
