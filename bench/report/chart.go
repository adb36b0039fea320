package main

import (
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// chart draws the ratios of a workload, one bar for each way.
func chart(w workload, rows []*row, file string) error {
	p := plot.New()
	p.Title.Text = w.title
	p.X.Label.Text = "time, as a multiple of " + w.base
	p.X.Min = 0
	var names []string
	for i := range rows {
		r := rows[len(rows)-1-i] // from below
		names = append(names, strings.TrimSpace(r.group+" "+r.how))
		bar, err := plotter.NewBarChart(plotter.Values{r.ratio}, vg.Points(12))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}
		if isOurs(r.how) {
			bar.Color = color.RGBA{R: 0x1f, G: 0x6f, B: 0xb2, A: 0xff}
		}
		p.Add(bar)
	}
	p.NominalY(names...)
	return p.Save(7*vg.Inch, vg.Length(float64(len(rows))*20+80), file)
}

// isOurs reports whether a way is this library's.
func isOurs(how string) bool {
	for _, name := range []string{"Locker", "Session", "Fencer", "guarded"} {
		if strings.HasPrefix(how, name) {
			return true
		}
	}
	return false
}
