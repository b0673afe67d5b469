package llm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A Price is what tokens cost, in US dollars for a million of them. Its text is
// IN,OUT[,CACHE_READ[,CACHE_WRITE]]; tokens of a cache cost what others of the
// input do unless it says so. The zero value is a price that is not known, and an
// empty text.
type Price struct {
	Input, Output, CacheRead, CacheWrite float64
}

// maxPrice bounds one number of a price: a dollar for a token.
const maxPrice = 1e6

var errPrice = errors.New("want IN,OUT[,CACHE_READ[,CACHE_WRITE]] in US dollars for a million tokens, such as 3,15,0.30,3.75")

// UnmarshalText reads a price.
func (p *Price) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ",")
	if len(parts) < 2 || len(parts) > 4 {
		return errPrice
	}
	var numbers []float64
	for _, part := range parts {
		n, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(n >= 0 && n <= maxPrice) { // which leaves out NaN
			return fmt.Errorf("%q is no price from 0 to %d: %w", part, int(maxPrice), errPrice)
		}
		numbers = append(numbers, n)
	}
	for len(numbers) < 4 {
		numbers = append(numbers, numbers[0])
	}
	*p = Price{numbers[0], numbers[1], numbers[2], numbers[3]}
	return nil
}

// MarshalText writes a price.
func (p Price) MarshalText() ([]byte, error) {
	if p == (Price{}) {
		return nil, nil
	}
	return fmt.Appendf(nil, "%g,%g,%g,%g", p.Input, p.Output, p.CacheRead, p.CacheWrite), nil
}

// of returns what a usage costs.
func (p Price) of(u model.Usage) float64 {
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output +
		float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*p.CacheWrite) / 1e6
}
