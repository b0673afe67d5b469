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
	// No text has more digits than that, so a greater exponent always means too large,
	// and a smaller one a fraction.
	const maxExponent = 1e9
	if text[0] == '-' {
		negative, text = true, text[1:]
	}
	digits, exponent := text, 0
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		digits = text[:e]
		exponent, _ = strconv.Atoi(string(text[e+1:])) // the nearest int, if it is out of range
		exponent = min(max(exponent, -maxExponent), maxExponent)
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
	if exponent < 0 || len(digits)+exponent > len("18446744073709551615") {
		return false, 0, false
	}
	if exponent > 0 {
		digits = append(bytes.Clone(digits), bytes.Repeat([]byte("0"), exponent)...)
	}
	magnitude, err := strconv.ParseUint(string(digits), 10, 64)
	return negative, magnitude, err == nil
}

// appendFloat appends a finite number in the shortest form that parses to the same
// value, with an exponent where ECMAScript uses one.
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
