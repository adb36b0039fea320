package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// What a trigger writes in the worker that applies is not checked, as what the
// worker writes itself. The same trigger is checked in other sessions.
func TestReplication_doesNotCheckWhatATriggerWrites(t *testing.T) {
	t.Parallel()
	publisher, subscriber := replicated(t, false)
	// From 16 on the worker writes with the rights of the table's owner.
	subscriber.exec(t, `CREATE TABLE audit (id int); GRANT INSERT ON audit TO PUBLIC;
		CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.audit VALUES (new.id); RETURN new; END $$;
		CREATE TRIGGER audit AFTER INSERT ON exports FOR EACH ROW EXECUTE FUNCTION audit();
		ALTER TABLE exports ENABLE ALWAYS TRIGGER audit;
		SELECT fencing.guard('public.audit', 'audit')`)
	subscribe(t, publisher, subscriber)
	lease := publisher.lock(t, publisher.fencer, "nightly")
	require.NoError(t, lease.InTx(t.Context(), publisher.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (1, 'published')`)
		return err
	}))
	subscriber.waitFor(t, "the row is applied", `SELECT EXISTS (SELECT FROM exports)`)
	require.Equal(t, "(1)", subscriber.contents(t, "audit"))

	local := subscriber.lock(t, subscriber.fencer, "nightly")
	err := local.InTx(t.Context(), subscriber.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (2, 'local')`)
		return err
	})
	requireCode(t, err, "LF002")
}
