package lockview

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Table is rows as text, with a line of headings. A semaphore's holders are shown
// by their slots only.
func Table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tKEY\tMODE\tPID\tUSER\tAPPLICATION\tCLIENT\tHELD FOR\tWAITING FOR")
	for _, r := range rows {
		if r.Announces() && r.State == Held {
			continue
		}
		_, _ = fmt.Fprintln(w, strings.Join([]string{
			r.title(), r.Key, r.Mode, r.process(), orDash(r.User), orDash(r.Application), r.client(), r.held(), r.waiting(),
		}, "\t"))
	}
	_ = w.Flush()
	return b.String()
}

func (r Row) title() string {
	switch {
	case r.Slot > 0:
		return fmt.Sprintf("%s [%d/%d]", Printable(r.Name), r.Slot, r.Limit)
	default:
		return orDash(r.Name)
	}
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
	if r.State != Waiting {
		return "-"
	}
	text := "?"
	if r.Waiting != nil {
		text = age(*r.Waiting)
	}
	if len(r.BlockedBy) > 0 {
		pids := make([]string, len(r.BlockedBy))
		for i, pid := range r.BlockedBy {
			pids[i] = strconv.FormatUint(uint64(pid), 10)
		}
		text += " (by " + strings.Join(pids, ", ") + ")"
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

// Printable is a text that can't do anything to a terminal or to a table.
func Printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}
