package llm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// A Price is the price of tokens, in US dollars for a million. Its text is
// IN,OUT[,CACHE_READ[,CACHE_WRITE]]; a cache price that is left out is that of other
// input. The zero value is an unknown price with an empty text.
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
	var read Price
	for i, to := range []*float64{&read.Input, &read.Output, &read.CacheRead, &read.CacheWrite} {
		if i >= len(parts) {
			*to = read.Input
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(parts[i]), 64)
		if err != nil || !(n >= 0 && n <= maxPrice) { // NaN is neither
			return fmt.Errorf("%q is no price from 0 to %d: %w", parts[i], int(maxPrice), errPrice)
		}
		*to = n
	}
	*p = read
	return nil
}

// MarshalText writes a price.
func (p Price) MarshalText() ([]byte, error) {
	if p == (Price{}) {
		return nil, nil
	}
	return fmt.Appendf(nil, "%g,%g,%g,%g", p.Input, p.Output, p.CacheRead, p.CacheWrite), nil
}

func (p Price) of(u model.Usage) float64 {
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output +
		float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*p.CacheWrite) / 1e6
}
