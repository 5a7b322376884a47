// Package alerts holds docs/alerts to what it says.
package alerts
