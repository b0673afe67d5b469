package main

import (
	"cmp"
	"math"
	"slices"
)

// A series is one value per repetition, in order. A repetition without a
// result is NaN.
type series []float64

// over divides two series repetition by repetition: values of different
// repetitions are never compared.
func (s series) over(base series) series {
	out := make(series, min(len(s), len(base)))
	for i := range out {
		out[i] = s[i] / base[i]
	}
	return out
}

// most is, repetition by repetition, the ratio between the largest of the others and s.
func (s series) most(others ...series) series {
	out := make(series, len(s))
	for _, o := range others {
		out = out[:min(len(out), len(o))]
		for i := range out {
			out[i] = max(out[i], o[i]/s[i])
		}
	}
	return out
}

// less subtracts two series repetition by repetition.
func (s series) less(base series) series {
	out := make(series, min(len(s), len(base)))
	for i := range out {
		out[i] = s[i] - base[i]
	}
	return out
}

// A summary is what a table shows of a series.
type summary struct{ median, low, high float64 }

// summarize returns the median and the extremes. An empty series, or one with
// a repetition missing, has none: NaN.
func (s series) summarize() summary {
	if len(s) == 0 || slices.ContainsFunc(s, math.IsNaN) {
		return summary{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		mid = (mid + sorted[len(sorted)/2-1]) / 2
	}
	return summary{mid, sorted[0], sorted[len(sorted)-1]}
}

// quantile is the smallest of the sorted values that at least the share q of
// them does not exceed, and zero if there are none.
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
