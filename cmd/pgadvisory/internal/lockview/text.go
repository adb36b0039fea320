package lockview

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable is a text that can't do anything to a terminal or to a table.
func Printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

// wide are the letters that take two cells of a terminal (Unicode Standard Annex
// 11), as far as blocks tell.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	default:
		return 1
	}
}

// cellWidth is how many cells of a terminal a text takes.
func cellWidth(text string) (cells int) {
	for _, r := range text {
		cells += runeWidth(r)
	}
	return cells
}

// Cut ends a text that is wider than a number of cells, unless that is 0.
func Cut(text string, cells int) string {
	if cells <= 0 {
		return text
	}
	for i, r := range text {
		if cells -= runeWidth(r); cells < 0 {
			return text[:i]
		}
	}
	return text
}

// shorten is Cut that shows that something was cut.
func shorten(text string, cells int) string {
	if cellWidth(text) <= cells {
		return text
	}
	text = strings.TrimRight(strings.TrimSuffix(text, cut), " ")
	return Cut(text, cells-len(cut)) + cut
}
