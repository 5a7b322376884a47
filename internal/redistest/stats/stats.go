// Package stats has the statistics of tests and benchmarks.
package stats

import (
	"math"
	"slices"
)

// Number is what is counted, or measured.
type Number interface{ ~int | ~int64 | ~float64 }

// Quantile is the nearest rank; NaN of nothing.
func Quantile[N Number](v []N, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return float64(s[max(int(math.Ceil(q*float64(len(s))))-1, 0)])
}

// Mean is NaN of nothing.
func Mean[N Number](v []N) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	return sum / float64(len(v))
}

// Jain is Jain's index of fairness: 1 if all got as much, 1/n if one got all, 0 if none got any.
func Jain[N Number](each []N) float64 {
	var sum, squares float64
	for _, n := range each {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(each)) * squares)
}
