package otel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config is where an [Observer] reports to. The zero Config, and a nil one, mean
// the documented defaults.
type Config struct {
	// MeterProvider makes the instruments. Defaults to the global one of
	// go.opentelemetry.io/otel, which may also be set later.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Defaults to the global one, which may
	// also be set later.
	TracerProvider trace.TracerProvider
}

// withDefaults returns a complete copy.
func (c *Config) withDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	if out.MeterProvider == nil {
		out.MeterProvider = otel.GetMeterProvider()
	}
	if out.TracerProvider == nil {
		out.TracerProvider = otel.GetTracerProvider()
	}
	return out
}
