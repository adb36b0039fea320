// Package lockview makes of what [advisory.Inspect] says what people and scripts
// are shown: names for numbers, and ages.
//
// The server knows locks by numbers only. A name is shown where one hashes to the
// number: one that was asked for, one that a holder's application_name tells (see
// [advisory], "Connections"), or that of a resource of fencing. A name is never
// guessed.
package lockview
