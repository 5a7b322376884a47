// Package alerts holds docs/alerts to what it says. Each alert fires where the thing that it is about is broken, with
// real clients on real Redis servers, and not before: what the clients report is scraped through OpenTelemetry's
// exporter for Prometheus, and promtool evaluates the rules on these samples.
//
// Time is stretched: a sample is taken each tenth of a second, and stands for 15 seconds of the rules' time.
package alerts
