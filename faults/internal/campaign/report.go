//go:build unix

package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// Text is the numbers of a run.
func (r Report) Text(seed uint64) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "\nseed %d: %d rounds in %d segments, %d violations\n", seed, r.Rounds, r.Segments, len(r.Violations))
	fmt.Fprintf(out, "operations        %d\n", r.Operations())
	fmt.Fprintf(out, "lock calls        %d, of which granted %d\n", r.Calls, r.Grants)
	fmt.Fprintf(out, "writes accepted   %d, unknown %d, failed %d\n", r.Writes[history.OK], r.Writes[history.Unknown], r.Writes[history.Failed])
	fmt.Fprintf(out, "writes refused    %d as stale, %d as never issued\n", r.Writes[history.Stale], r.Writes[history.Foreign])
	fmt.Fprintf(out, "takeovers         %d\n", r.Takeovers)
	fmt.Fprintf(out, "overlaps          %d, each explained by a loss\n", r.Overlaps)
	fmt.Fprintf(out, "losses noticed    %d, the worst after %s\n", r.Losses, r.WorstNotice.Round(time.Millisecond))
	fmt.Fprintf(out, "worst lock call   %s after its context had ended\n", r.WorstCall.Round(time.Millisecond))
	fmt.Fprintf(out, "worst unlock      %s\n", r.WorstUnlock.Round(time.Millisecond))
	fmt.Fprintf(out, "worst recovery    %s after %s, until all keys were granted and written to again\n",
		r.WorstRecovery.Round(time.Millisecond), r.RecoveredFrom)
	fmt.Fprintf(out, "lost by failovers %d acknowledged writes of the end that a standby did not have\n", r.LostWrites)
	fmt.Fprint(out, "faults           ")
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(out, " %s %d", kind, r.Faults[kind])
	}
	fmt.Fprintf(out, "\ntook              %s\n", r.Elapsed.Round(time.Second))
	return out.String()
}
