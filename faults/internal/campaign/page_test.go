//go:build unix

package campaign_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
)

// The page on reliability has each fault and each rule, and nothing else.
func TestPage_hasWhatThereIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reliability.md")
	require.NoError(t, err)
	table := func(heading string) (names []string) {
		_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
		require.True(t, found, heading)
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, "|"); len(cells) > 2 {
				for _, match := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
					names = append(names, match[1])
				}
			}
		}
		slices.Sort(names)
		return names
	}
	var faults []string
	for kind := range nemesis.All {
		faults = append(faults, string(kind))
	}
	slices.Sort(faults)
	require.Equal(t, faults, table("The faults"))
	rules := []string{
		string(checker.Token), string(checker.Stale), string(checker.Content), string(checker.Exclusion), string(checker.Notice),
		string(checker.Bound), string(checker.Register), string(checker.Left), string(checker.Stuck),
	}
	slices.Sort(rules)
	require.Equal(t, rules, table("The checks"))

	text := strings.Join(strings.Fields(string(page)), " ")
	require.Contains(t, text, "`Heartbeat` "+ms(worker.Heartbeat)+" and `HeartbeatTimeout` "+ms(worker.HeartbeatTimeout)+
		", so that a loss has to be noticed within "+ms(worker.Heartbeat+worker.HeartbeatTimeout)+"; `UnlockTimeout` "+ms(worker.UnlockTimeout))
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + " ms" }
