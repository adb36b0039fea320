package advisory_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// What a name maps to never changes: replicas of two versions of a program must
// exclude each other, and so must programs in other languages (cases 64, 70,
// 76). The numbers are a server's, SELECT hashtextextended(name, 0).
var golden = map[string]int64{
	"a":                                    3591986179850072241,
	"nightly-export":                       -2196931983678567086,
	"migrate":                              1672096346865029900,
	"zz":                                   4825483897903340115,
	"plumless":                             -1504806909125691391, // case 69: one CRC-32 with the next
	"buckeroo":                             4753701369947008764,
	"0123456789ab":                         -300982144080685429,
	"0123456789abc":                        4688655838450958077,
	"0123456789abcdefghijklmnopqrstuvwxyz": 2599983508539421163,
	"Ünïcödé":                              -2875524806551075099,
	"エクスポート":                               3775942849162955260,
	"🐘":                                    -2321601135681841783,
	" ":                                    6600704740418937010,
	"a/b:c":                                2482916647759539526,
	"tenant:42":                            8635320705654377979,
	"tenant:43":                            -1568345229415925587,
	`x'y"z`:                                -3155713397454239079,
	strings.Repeat("x", 300):               -5093180498473996086,
}

func TestName_isFrozen(t *testing.T) {
	t.Parallel()
	for name, want := range golden {
		require.Equal(t, fmt.Sprintf("'%d'::bigint", want), advisory.Name(name).SQL(), name)
	}
}

func TestName_equalsTheServersHash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = randomName(i % 301)
	}
	rows, err := b.raw.Query(t.Context(), "SELECT n, format('%L::bigint', hashtextextended(n, 0)) FROM unnest($1::text[]) n", names)
	require.NoError(t, err)
	defer rows.Close()
	count := 0
	for rows.Next() {
		var name, sql string
		require.NoError(t, rows.Scan(&name, &sql))
		require.Equal(t, sql, advisory.Name(name).SQL(), "%q", name)
		count++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, len(names), count)
}

// randomName is any text that PostgreSQL can hold, in size bytes.
func randomName(size int) string {
	var s strings.Builder
	for s.Len() < size {
		r := 1 + rand.N(utf8.MaxRune)
		if rand.N(2) == 0 {
			r = rune(1 + rand.N(0x7f))
		}
		if utf8.ValidRune(r) && s.Len()+utf8.RuneLen(r) <= size {
			s.WriteRune(r)
		}
	}
	return s.String()
}

func TestName_spreads(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool, 200_000)
	negative := 0
	for i := range 200_000 { // cases 67 and 68
		sql := advisory.Name(fmt.Sprintf("tenant:%d", i)).SQL()
		seen[sql] = true
		if sql[1] == '-' {
			negative++
		}
	}
	require.Len(t, seen, 200_000)
	require.InDelta(t, 100_000, negative, 2_000)
}

func TestKey_texts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key         advisory.Key
		text, input string
	}{
		{advisory.Name("migrate"), `"migrate" (1672096346865029900)`, "'1672096346865029900'::bigint"},
		{advisory.ID(0), "0", "'0'::bigint"},
		{advisory.ID(-1), "-1", "'-1'::bigint"},
		{advisory.ID(math.MinInt64), "-9223372036854775808", "'-9223372036854775808'::bigint"},
		{advisory.ID(0xFFFFFFFF), "4294967295", "'4294967295'::bigint"},
		{advisory.Pair(1, 2), "(1, 2)", "'1'::int, '2'::int"},
		{advisory.Pair(-1, math.MinInt32), "(-1, -2147483648)", "'-1'::int, '-2147483648'::int"},
		{advisory.Key{}, "no key", ""},
	} {
		require.Equal(t, c.text, c.key.String())
		require.Equal(t, c.input, c.key.SQL())
	}
	require.NotEqual(t, advisory.ID(5<<32|7), advisory.Pair(5, 7))
}
