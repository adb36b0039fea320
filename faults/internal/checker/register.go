//go:build unix

package checker

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// searchLimit bounds the search for a linearization of one register in one era.
const searchLimit = 20 * time.Second

// step is an operation on a register: it was read, and perhaps written. Each
// write has a value of its own.
type step struct {
	was     string
	op      string // what is written, or ""
	isMaybe bool   // nobody knows whether it was written
}

// checkRegister asks porcupine whether there is an order of the reads and writes
// that fits what they read and when they were. Each era begins with what the new
// primary had.
func (j *judge) checkRegister(key string) {
	start, first := j.start[key].Register, 0
	for _, p := range j.promotions {
		j.checkEra(key, first, p.Era-1, start, p.tables[key], p.Lossy)
		start, first = p.tables[key].Register, p.Era
	}
	j.checkEra(key, first, int(^uint(0)>>1), start, j.end[key], false)
}

// checkEra is for the operations on the servers of the eras from first to last.
// content is what was left of them.
func (j *judge) checkEra(key string, first, last int, start string, content *history.Tables, isLossy bool) {
	var ops []porcupine.Operation
	add := func(worker int, s step, from, to history.Time) {
		ops = append(ops, porcupine.Operation{ClientId: worker, Input: s, Call: int64(from), Return: int64(to)})
	}
	for _, w := range j.writes[key] {
		if !w.swap || w.commit == 0 || w.era < first || w.era > last {
			continue
		}
		s := step{was: w.was, op: w.op}
		switch {
		case w.outcome == history.OK:
			add(w.worker, s, w.began, w.end)
		case w.outcome == history.Unknown && contains(content, w.op):
			add(w.worker, s, w.began, never)
		case w.outcome == history.Unknown && isLossy:
			s.isMaybe = true
			add(w.worker, s, w.began, never)
		}
	}
	for _, r := range j.reads[key] {
		if r.era >= first && r.era <= last {
			add(0, step{was: r.was}, r.began, r.end)
		}
	}
	switch porcupine.CheckOperationsTimeout(registerModel(start), ops, searchLimit) {
	case porcupine.Ok:
	case porcupine.Illegal:
		j.blame(Register, key, j.last, "key %s: the register was not linearizable from %q on, in %d operations", key, start, len(ops))
	case porcupine.Unknown:
		j.blame(Register, key, j.last, "key %s: not found out in %s whether the register was linearizable", key, searchLimit)
	}
}

// registerModel is a register of which each operation says what it has read.
func registerModel(start string) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{start} },
		Step: func(state, input, _ any) []any {
			s := input.(step)
			var next []any
			if s.isMaybe {
				next = append(next, state)
			}
			switch {
			case state != any(s.was):
			case s.op == "":
				next = append(next, state)
			default:
				next = append(next, any(s.op))
			}
			return next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
	return model.ToModel()
}
