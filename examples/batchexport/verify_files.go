//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// days: all of the source's, each by one publication.
func (v *verifier) days() error {
	var days []string
	for _, p := range v.published {
		days = append(days, p.Day.Format(dayLayout))
	}
	if !slices.Equal(days, v.source.days) {
		return fmt.Errorf("published are %v", days)
	}
	var errs []error
	for _, day := range days {
		if tokens := v.story.publication[day]; len(tokens) != 1 {
			errs = append(errs, fmt.Errorf("%s was published %d times, with tokens %v", day, len(tokens), tokens))
		}
	}
	return errors.Join(errs...)
}

// earthquakes: the files' records are the source's.
func (v *verifier) earthquakes() error {
	seen := make(map[string]bool, len(v.source.records))
	for _, p := range v.published {
		records, err := v.records(p)
		if err != nil {
			return err
		}
		for _, record := range records {
			id := record[0]
			if seen[id] {
				return fmt.Errorf("%s is there twice, the second time in %s", id, p.File)
			}
			if original := v.source.records[id]; !slices.Equal(record, original) {
				return fmt.Errorf("%s has %v, and the source has %v", p.File, record, original)
			}
			seen[id] = true
		}
	}
	if len(seen) != len(v.source.records) {
		return fmt.Errorf("only %d are there", len(seen))
	}
	return nil
}

// hashes: the files are those that were published.
func (v *verifier) hashes() error {
	for _, p := range v.published {
		text, err := os.ReadFile(filepath.Join(v.folder, p.File))
		if err != nil {
			return err
		}
		records, err := v.records(p)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		if hash := hex.EncodeToString(sum[:]); hash != p.SHA256 || len(records) != p.Rows {
			return fmt.Errorf("%s has %d rows and %s, and recorded are %d and %s", p.File, len(records), hash, p.Rows, p.SHA256)
		}
	}
	return nil
}

// leftovers: what was not published is gone.
func (v *verifier) leftovers() error {
	entries, err := os.ReadDir(v.folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !slices.ContainsFunc(v.published, func(p publication) bool { return p.File == entry.Name() }) {
			return fmt.Errorf("%s is not published", entry.Name())
		}
	}
	return nil
}

// records reads a file without its header.
func (v *verifier) records(p publication) ([][]string, error) {
	text, err := os.ReadFile(filepath.Join(v.folder, p.File))
	if err != nil {
		return nil, err
	}
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	if len(records) == 0 || !slices.Equal(records[0], columns) {
		return nil, fmt.Errorf("%s has no header, or another one", p.File)
	}
	return records[1:], nil
}
