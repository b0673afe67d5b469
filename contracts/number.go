package contracts

import (
	"bytes"
	"math"
	"strconv"
)

// parseInteger returns the value of a JSON number as sign and magnitude. It accepts
// every spelling of an integer, such as 1.0 and 1e3. ok is false for fractions and
// for magnitudes above 64 bits.
func parseInteger(text []byte) (negative bool, magnitude uint64, ok bool) {
	if text[0] == '-' {
		negative, text = true, text[1:]
	}
	digits, exponent := text, 0
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		digits = text[:e]
		exponent = clampedAtoi(text[e+1:])
	}
	if whole, fraction, found := bytes.Cut(digits, []byte(".")); found {
		digits = append(bytes.Clone(whole), fraction...)
		exponent -= len(fraction)
	}
	if exponent != 0 {
		trimmed := bytes.TrimRight(digits, "0")
		exponent += len(digits) - len(trimmed)
		digits = trimmed
	}
	digits = bytes.TrimLeft(digits, "0")
	if len(digits) == 0 {
		return false, 0, true
	}
	if exponent < 0 || len(digits)+exponent > 20 {
		return false, 0, false
	}
	for _, c := range digits {
		if magnitude, ok = timesTen(magnitude, uint64(c-'0')); !ok {
			return false, 0, false
		}
	}
	for range exponent {
		if magnitude, ok = timesTen(magnitude, 0); !ok {
			return false, 0, false
		}
	}
	return negative, magnitude, true
}

// timesTen returns n*10+digit and reports whether it fits.
func timesTen(n, digit uint64) (uint64, bool) {
	if n > (math.MaxUint64-digit)/10 {
		return 0, false
	}
	return n*10 + digit, true
}

// clampedAtoi returns a decimal exponent, limited to maxExponent. No text has more
// digits than that, so a greater exponent always means too large, and a smaller one
// a fraction.
func clampedAtoi(text []byte) int {
	const maxExponent = 1e9
	n, err := strconv.Atoi(string(text))
	if err != nil && text[0] == '-' {
		return -maxExponent
	}
	if err != nil {
		return maxExponent
	}
	return min(max(n, -maxExponent), maxExponent)
}

// toInt64 returns the signed value and reports whether it fits.
func toInt64(negative bool, magnitude uint64) (int64, bool) {
	if negative {
		return -int64(magnitude), magnitude <= 1<<63
	}
	return int64(magnitude), magnitude <= math.MaxInt64
}

// appendFloat appends a finite number in the shortest form that parses to the same
// value, with an exponent where ECMAScript uses one.
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
