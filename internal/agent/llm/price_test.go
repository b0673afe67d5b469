package llm

import (
	"strings"
	"testing"
)

func TestPricesAreRead(t *testing.T) {
	for text, want := range map[string]Price{
		"3,15":              {3, 15, 3, 3},
		"3,15,0.3":          {3, 15, 0.3, 3},
		" 3 , 15,.30,3.75 ": {3, 15, 0.3, 3.75},
		"0,0":               {},
	} {
		var got, again Price
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
		if out, err := got.MarshalText(); got != (Price{}) && (again.UnmarshalText(out) != nil || again != got) || err != nil {
			t.Errorf("%q: got %q, %v, want the same price", text, out, err)
		}
	}
	for _, text := range []string{"", "3", "3,", "1,2,3,4,5", "a,b", "-1,2", "1,NaN", "1,Inf", "1,1e7", "$3,$15", "3;15", "1,2,,4"} {
		p := Price{Input: 7}
		if err := p.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "IN,OUT[,CACHE_READ[,CACHE_WRITE]]") || p.Input != 7 {
			t.Errorf("%q: got %+v, %v, want an error that says how, and the price as it was", text, p, err)
		}
	}
}
