package lockview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// column is one of a table. A narrow terminal does without those that have a
// rank, the highest first.
type column struct {
	title  string
	rank   int
	of     func(Row) string
	limit  int              // how many cells it may have in a narrow terminal; 0 is no limit
	narrow func(Row) string // in the place of of in a narrow terminal; or nil
}

// nameFloor is how short a name may get before lines are cut: a key fits.
const nameFloor = 20

var columns = []column{
	{title: "NAME", of: Row.title, limit: 32},
	{title: "KEY", rank: 4, of: func(r Row) string { return r.Key }},
	{title: "MODE", of: func(r Row) string { return r.Mode }},
	{title: "PID", of: Row.process, limit: 24},
	{title: "USER", rank: 2, of: func(r Row) string { return orDash(r.User) }, limit: 16},
	{title: "APPLICATION", rank: 1, of: Row.application, limit: 24},
	{title: "CLIENT", rank: 3, of: Row.client},
	{title: "HELD FOR", of: Row.held},
	{title: "WAITING FOR", of: Row.waiting, narrow: Row.waitingBriefly},
}

// Table is rows as text, with a line of headings. A semaphore's holders are shown
// by their slots only. It is made to fit a width, unless that is 0: long texts are
// shortened then, and columns left out that are needed least.
func Table(rows []Row, width int) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Announces() && r.State == Held })
	shown := slices.Clone(columns)
	cells := render(shown, rows, false)
	if width > 0 && lineWidth(cells) > width {
		cells = fit(shown, rows, width)
	}
	return layOut(cells, width)
}

// render is the table's cells, with the headings first.
func render(shown []column, rows []Row, narrow bool) [][]string {
	cells := make([][]string, 0, len(rows)+1)
	headings := make([]string, len(shown))
	hasKey := false
	for i, c := range shown {
		headings[i] = c.title
		hasKey = hasKey || c.title == "KEY"
	}
	cells = append(cells, headings)
	for _, r := range rows {
		line := make([]string, len(shown))
		for i, c := range shown {
			line[i] = c.of(r)
			if narrow && c.narrow != nil {
				line[i] = c.narrow(r)
			}
			if c.title == "NAME" && line[i] == "-" && !hasKey {
				line[i] = r.Key
			}
		}
		cells = append(cells, line)
	}
	return cells
}

// fit shortens texts and leaves out columns until all fits, as far as it can.
func fit(shown []column, rows []Row, width int) [][]string {
	for {
		cells := render(shown, rows, true)
		for _, line := range cells[1:] {
			for i, c := range shown {
				if c.limit > 0 {
					line[i] = shorten(line[i], c.limit)
				}
			}
		}
		least := -1 // the column that is needed least
		for i, c := range shown {
			if c.rank > 0 && (least < 0 || c.rank > shown[least].rank) {
				least = i
			}
		}
		excess := lineWidth(cells) - width
		if excess > 0 && least >= 0 {
			shown = slices.Delete(slices.Clone(shown), least, least+1)
			continue
		}
		if excess > 0 {
			name := max(nameFloor, columnWidths(cells)[0]-excess)
			for _, line := range cells {
				line[0] = shorten(line[0], name)
			}
		}
		return cells
	}
}

const gap = 2

func columnWidths(cells [][]string) []int {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, text := range line {
			widths[i] = max(widths[i], cellWidth(text))
		}
	}
	return widths
}

func lineWidth(cells [][]string) int {
	total := -gap
	for _, w := range columnWidths(cells) {
		total += w + gap
	}
	return total
}

func layOut(cells [][]string, width int) string {
	var b strings.Builder
	widths := columnWidths(cells)
	for _, line := range cells {
		var text strings.Builder
		for i, cell := range line {
			text.WriteString(cell)
			if i+1 < len(line) {
				text.WriteString(strings.Repeat(" ", widths[i]-cellWidth(cell)+gap))
			}
		}
		b.WriteString(Cut(strings.TrimRight(text.String(), " "), width) + "\n")
	}
	return b.String()
}

// title is the name, or what the session tells of it where that is not all.
func (r Row) title() string {
	name := r.Name
	if t, ok := toldBy(r.Status.Application); name == "" && ok {
		switch {
		case t.isOfSeveral():
			first, _, _ := strings.Cut(t.rest, " and ")
			name = "(with " + first + ")"
		case t.isCut():
			name = strings.TrimSuffix(t.rest, cut) + cut
		}
	}
	if r.Slot > 0 {
		return fmt.Sprintf("%s [%d/%d]", Printable(name), r.Slot, r.Limit)
	}
	return orDash(name)
}

// application leaves out what other columns show.
func (r Row) application() string {
	t, ok := toldBy(r.Application)
	if !ok || r.title() == "-" || !t.isFor(r.Name) {
		return orDash(r.Application)
	}
	rest := strings.TrimPrefix(t.rest, ascii(r.Name))
	if _, after, found := strings.Cut(rest, " of "); found {
		return orDash(after)
	}
	return "-"
}

func (r Row) process() string {
	if r.Prepared != "" {
		return "prepared " + Printable(r.Prepared)
	}
	return strconv.FormatUint(uint64(r.PID), 10)
}

func (r Row) client() string {
	switch {
	case r.Client != "":
		return r.Client
	case r.Status.BackendStart.IsZero():
		return "-" // not shown to this role
	default:
		return "local"
	}
}

func (r Row) held() string {
	switch {
	case r.Held != nil:
		return age(*r.Held)
	case r.HeldAtMost != nil:
		return "<= " + age(*r.HeldAtMost)
	default:
		return "-"
	}
}

func (r Row) waiting() string {
	pids := make([]string, len(r.BlockedBy))
	for i, pid := range r.BlockedBy {
		pids[i] = strconv.FormatUint(uint64(pid), 10)
	}
	return r.waitingBy(strings.Join(pids, ", "))
}

// waitingBriefly has only one of the processes, and the number of others.
func (r Row) waitingBriefly() string {
	if len(r.BlockedBy) < 2 {
		return r.waiting()
	}
	return r.waitingBy(fmt.Sprintf("%d +%d", r.BlockedBy[0], len(r.BlockedBy)-1))
}

func (r Row) waitingBy(blockers string) string {
	if r.State != Waiting {
		return "-"
	}
	text := "?"
	if r.Waiting != nil {
		text = age(*r.Waiting)
	}
	if blockers != "" {
		text += " (by " + blockers + ")"
	}
	return text
}

// age is a number of seconds for people.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Truncate(time.Second)
	if d >= 24*time.Hour {
		return fmt.Sprintf("%dd%02dh%02dm", d/(24*time.Hour), d/time.Hour%24, d/time.Minute%60)
	}
	return d.String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return Printable(text)
}
