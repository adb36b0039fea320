//go:build unix

package checker

import "slices"

// checkTokens compares each two grants of which it is certain which came first.
//
// It is where one had been answered before the other was asked for. And where
// the later holder was told at its unlock that it had held all the time: whatever
// was answered before that unlock was granted before that hold. (An answer that
// comes late, to a process that was stopped, says nothing by itself: its grant may
// have been the earlier one.)
func (j *judge) checkTokens(key string) {
	holds, seen := j.holds[key], make(map[int64]*hold)
	for _, b := range holds {
		if mark := j.start[key].Mark; b.token <= mark {
			j.blame(Token, key, b.granted, "key %s: grant %s has token %d, and the mark was %d before", key, b.op, b.token, mark)
		}
		if a := seen[b.token]; a != nil {
			j.blame(Token, key, b.granted, "key %s: grants %s and %s both have token %d", key, a.op, b.op, b.token)
		}
		seen[b.token] = b
		i := slices.IndexFunc(holds, func(a *hold) bool { return a.token > b.token && a.precedes(b) })
		if i >= 0 {
			a := holds[i]
			j.blame(Token, key, b.granted, "key %s: grant %s with token %d came after %s with token %d", key, b.op, b.token, a.op, a.token)
		}
	}
}

// precedes reports whether a was certainly granted before b.
func (h *hold) precedes(b *hold) bool {
	return h.granted < b.asked || b.isClean() && h.granted < b.unlocking
}
