package advisory_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// The severity is in the server's language besides.
func TestLoss_onAServerThatSpeaksAnotherLanguage(t *testing.T) {
	t.Parallel()
	for severity, reason := range map[string]advisory.LostReason{
		"FATAL":         advisory.LostTerminated, // in German, French and others too
		"ВАЖНО":         advisory.LostDisconnected,
		"KATASTROFALNY": advisory.LostDisconnected,
	} {
		relay := &interjector{}
		peer := serve(t)
		_, locker := onPeer(t, peer, &advisory.Config{Heartbeat: time.Hour}, relay.carry)
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		relay.say(t, &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: "FATAL", Code: "57P01", Message: "unasked"})
		peer.Close()
		noticed(t, lock)
		var lost *advisory.LostError
		require.ErrorAs(t, lock.Err(), &lost)
		require.Equal(t, reason, lost.Reason, severity)
	}
}
