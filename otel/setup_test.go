package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgadvisory/pgadvisory/otel"
)

// bundle is an Observer and what it reports to.
type bundle struct {
	observer *otel.Observer
	reader   *metric.ManualReader
	spans    *tracetest.SpanRecorder
	tracers  *trace.TracerProvider
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(b.spans))
	observer, err := otel.NewObserver(&otel.Config{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(b.reader)),
		TracerProvider: b.tracers,
	})
	require.NoError(t, err)
	b.observer = observer
	return b
}

// collect returns each metric that has a value.
func (b *bundle) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.reader.Collect(context.Background(), &all)) // also in a cleanup
	metrics := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, "github.com/pgadvisory/pgadvisory/otel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// values returns what the metrics say and is not 0, one line for each combination of
// attributes: counts of histograms, values of the others.
func (b *bundle) values(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(b.allValues(t), func(line string) bool { return strings.HasSuffix(line, ": 0") })
}

// allValues returns those that are 0, too.
func (b *bundle) allValues(t *testing.T) []string {
	t.Helper()
	var lines []string
	add := func(name string, set attribute.Set, value any) {
		line := name
		for _, a := range set.ToSlice() {
			line += " " + a.Value.String()
		}
		lines = append(lines, fmt.Sprintf("%s: %v", line, value))
	}
	for name, m := range b.collect(t) {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Count)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Value)
			}
		default:
			t.Errorf("%s is a %T", name, data)
		}
	}
	slices.Sort(lines)
	return lines
}

// ended returns the only span of a name that has ended.
func (b *bundle) ended(t *testing.T, name string) trace.ReadOnlySpan {
	t.Helper()
	var found []trace.ReadOnlySpan
	for _, s := range b.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

// attributes returns the attributes of a span as text.
func attributes(s trace.ReadOnlySpan) map[string]string {
	texts := make(map[string]string)
	for _, a := range s.Attributes() {
		texts[string(a.Key)] = a.Value.String()
	}
	return texts
}
