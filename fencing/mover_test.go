package fencing_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const (
	movableSQL = `CREATE TABLE p (id int, region text, tenant text, note text) PARTITION BY LIST (region);
		CREATE TABLE p_a PARTITION OF p FOR VALUES IN ('a');
		CREATE TABLE p_b PARTITION OF p FOR VALUES IN ('b') PARTITION BY LIST (tenant);
		CREATE TABLE p_b_all PARTITION OF p_b DEFAULT;
		CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.region := 'b'; RETURN new; END $$;
		CREATE FUNCTION give_away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.tenant := 't2'; RETURN new; END $$`
	mergeSQL = `MERGE INTO p USING (VALUES (1)) s (id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET note = 'merged'`
	moveSQL  = `MERGE INTO p USING (VALUES (1)) s (id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET region = 'b'`
)

type mover struct {
	ddl, merge   string
	givesAway    bool // the row to another tenant
	isSeenAnyway bool // without the event trigger, too
}

// movers are triggers that come when the table is guarded already. A MERGE then
// moves a row to another partition, of which no transition table tells.
var movers = map[string]mover{
	"before the check":               {ddl: `CREATE TRIGGER mover BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move()`, merge: mergeSQL, isSeenAnyway: true},
	"of a leaf":                      {ddl: `CREATE TRIGGER mover BEFORE UPDATE ON p_a FOR EACH ROW EXECUTE FUNCTION move()`, merge: mergeSQL, isSeenAnyway: true},
	"disabled for a while":           {ddl: `CREATE TRIGGER mover BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move(); ALTER TABLE p DISABLE TRIGGER mover; ALTER TABLE p ENABLE TRIGGER mover`, merge: mergeSQL, isSeenAnyway: true},
	"after the check":                {ddl: `CREATE TRIGGER zzz BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move()`, merge: mergeSQL},
	"after the check, of a leaf":     {ddl: `CREATE TRIGGER zzz BEFORE UPDATE ON p_a FOR EACH ROW EXECUTE FUNCTION move()`, merge: mergeSQL},
	"renamed":                        {ddl: `CREATE TRIGGER mover BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move(); ALTER TRIGGER mover ON p RENAME TO zzz`, merge: mergeSQL},
	"of a partition in a new schema": {ddl: `DROP TABLE p_b; CREATE SCHEMA more CREATE TABLE b PARTITION OF public.p FOR VALUES IN ('b') CREATE TRIGGER arrival BEFORE INSERT ON b FOR EACH ROW EXECUTE FUNCTION public.give_away()`, merge: moveSQL, givesAway: true, isSeenAnyway: true},
	"where the row arrives":          {ddl: `CREATE TRIGGER arrival BEFORE INSERT ON p_b_all FOR EACH ROW EXECUTE FUNCTION give_away()`, merge: moveSQL, givesAway: true},
	"where any row arrives":          {ddl: `CREATE TRIGGER arrival BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION give_away()`, merge: moveSQL, givesAway: true},
	"of a partition that is new":     {ddl: `ALTER TABLE p DETACH PARTITION p_b; CREATE TABLE new (LIKE p); CREATE TRIGGER arrival BEFORE INSERT ON new FOR EACH ROW EXECUTE FUNCTION give_away(); ALTER TABLE p ATTACH PARTITION new FOR VALUES IN ('b')`, merge: moveSQL, givesAway: true, isSeenAnyway: true},
	"in a function's transaction":    {ddl: `DO $$ BEGIN CREATE TRIGGER zzz BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move(); END $$`, merge: mergeSQL},
}

// movable has a row of t1, in the first of two partitions, and two holders of it.
func movable(t *testing.T, b *bundle) (old, current *fencing.Lease) {
	t.Helper()
	b.exec(t, movableSQL)
	b.exec(t, `INSERT INTO p VALUES (1, 'a', 't1')`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "p", "tenant"))
	return b.superseded(t, "t1")
}

func TestGuardBy_checksRowsThatALaterTriggerMoves(t *testing.T) {
	t.Parallel()
	for name, m := range movers {
		if m.isSeenAnyway {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				old, current := movable(t, b)
				b.exec(t, m.ddl)
				m.requireRefused(t, b, old, current)
			})
		}
	}
}

// What fires after the check of rows that move has each row checked, once the
// table is guarded anew.
func TestVerify_findsATriggerThatMovesRowsAfterTheyWereChecked(t *testing.T) {
	t.Parallel()
	for name, m := range movers {
		if !m.isSeenAnyway {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				old, current := movable(t, b)
				b.exec(t, m.ddl)
				found := problems(t, b.pool, "public.p")
				require.Equal(t, b.db.Server.Version() < 150000, len(found) == 0, "%+v", found)
				for _, p := range found {
					require.Contains(t, p.What, "is disabled")
					require.Equal(t, `SELECT fencing.guard_by('public.p', 'tenant', '')`, p.Fix)
				}
				require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "p", "tenant"))
				require.Empty(t, problems(t, b.pool, "public.p"))
				m.requireRefused(t, b, old, current)
			})
		}
	}
}

func TestOnDDL_hasRowsCheckedThatALaterTriggerMoves(t *testing.T) {
	t.Parallel()
	for name, m := range movers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, eventTriggerSQL)
			old, current := movable(t, b)
			b.exec(t, m.ddl)
			require.Empty(t, problems(t, b.pool, "public.p"))
			m.requireRefused(t, b, old, current)
		})
	}
}

// requireRefused says that the MERGE is refused to whom it has to be.
func (m mover) requireRefused(t *testing.T, b *bundle, old, current *fencing.Lease) {
	t.Helper()
	if b.db.Server.Version() < 150000 {
		t.Log("not applicable: the server has no MERGE")
		return
	}
	_, err := b.pool.Exec(t.Context(), m.merge)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	require.ErrorIs(t, old.InTx(t.Context(), b.pool, statementOf(t, m.merge)), fencing.ErrStale)
	require.Equal(t, "(1,a,t1,)", b.contents(t, "p"))
	err = current.InTx(t.Context(), b.pool, statementOf(t, m.merge))
	if m.givesAway {
		require.ErrorIs(t, err, fencing.ErrUnstamped)
		require.Equal(t, "(1,a,t1,)", b.contents(t, "p"))
		return
	}
	require.NoError(t, err)
	require.NotEqual(t, "(1,a,t1,)", b.contents(t, "p"))
}

// The column that a row is stamped in may be one by which it is filed.
func TestGuardBy_checksRowsThatTheirStampMoves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if b.db.Server.Version() < 150000 {
		t.Log("not applicable: the server has no MERGE")
		return
	}
	b.exec(t, `CREATE TABLE p (id int, tenant text, fencing_token bigint) PARTITION BY RANGE (fencing_token);
		CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (1); CREATE TABLE p_1 PARTITION OF p DEFAULT; INSERT INTO p VALUES (1, 't1', 0)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "p", "tenant"))
	old, current := b.superseded(t, "t1")
	const merge = `MERGE INTO p USING (VALUES (1)) s (id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET id = 2`
	require.ErrorIs(t, old.InTx(t.Context(), b.pool, statementOf(t, merge)), fencing.ErrStale)
	require.Equal(t, "(1,t1,0)", b.contents(t, "p"))
	require.NoError(t, current.InTx(t.Context(), b.pool, statementOf(t, merge)))
	require.Equal(t, fmt.Sprintf("(2,t1,%d)", current.Token()), b.contents(t, "p_1"))
}

// A trigger that only fires before the check of rows that move does not have each
// row checked.
func TestGuardBy_checksNotEachRowBecauseOfATriggerThatItSees(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, eventTriggerSQL)
	movable(t, b)
	b.exec(t, `CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.note := 'touched'; RETURN new; END $$;
		CREATE TRIGGER touch BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION touch();
		CREATE TRIGGER told AFTER INSERT OR UPDATE ON p FOR EACH ROW EXECUTE FUNCTION touch()`)
	require.Empty(t, problems(t, b.pool, "public.p"))
	require.Equal(t, "D", one[string](t, b.observer, `SELECT tgenabled::text FROM pg_trigger WHERE tgrelid = 'p_a'::regclass AND tgname = 'fencing_guard_row'`))
}
