package advisory_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func FuzzName(f *testing.F) {
	for name := range golden {
		f.Add(name)
	}
	f.Add("\x00\xff")
	f.Fuzz(func(t *testing.T, name string) {
		sql := advisory.Name(name).SQL()
		number, ok := strings.CutPrefix(sql, "'")
		number, ok2 := strings.CutSuffix(number, "'::bigint")
		if _, err := strconv.ParseInt(number, 10, 64); !ok || !ok2 || err != nil {
			t.Fatalf("%q: %s", name, sql)
		}
		if want := fmt.Sprintf("%q (%s)", name, number); advisory.Name(name).String() != want {
			t.Fatalf("%s, want %s", advisory.Name(name), want)
		}
	})
}

func FuzzPair(f *testing.F) {
	f.Add(int32(0), int32(0))
	f.Add(int32(-1), int32(-1<<31))
	f.Fuzz(func(t *testing.T, class, object int32) {
		if got, want := advisory.Pair(class, object).SQL(), fmt.Sprintf("'%d'::int, '%d'::int", class, object); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
