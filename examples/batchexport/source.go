//go:build unix

package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
)

// earthquakesCSV holds earthquakes of eight days, by the US Geological Survey.
//
//go:embed earthquakes.csv
var earthquakesCSV []byte

// columns is the first line of earthquakes.csv and of each exported file.
var columns = []string{
	"id", "occurred_at", "magnitude", "magnitude_type",
	"depth_km", "latitude", "longitude", "place",
}

// source is what there is to export.
type source struct {
	records map[string][]string // by id
	days    []string            // in order
}

// timeLayout is that of occurred_at, whose first ten bytes are the day.
const (
	timeLayout = "2006-01-02T15:04:05.000Z07:00"
	dayLayout  = "2006-01-02"
)

func readSource() (*source, error) {
	rows, err := csv.NewReader(bytes.NewReader(earthquakesCSV)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("earthquakes.csv: %w", err)
	}
	if !slices.Equal(rows[0], columns) {
		return nil, fmt.Errorf("earthquakes.csv: unexpected columns %v", rows[0])
	}
	s := &source{records: make(map[string][]string, len(rows)-1)}
	for _, row := range rows[1:] {
		s.records[row[0]] = row
		s.days = append(s.days, row[1][:len(dayLayout)])
	}
	slices.Sort(s.days)
	s.days = slices.Compact(s.days)
	return s, nil
}
