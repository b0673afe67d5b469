package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

// pagesGrowth is how long a page of the history of a long session takes, and how much
// memory such pages need.
var pagesGrowth = growth{
	name: "pages",
	figures: func(p plan) []figure {
		of := fmt.Sprintf("of a session of %d events", p.growth.pages.events)
		return []figure{
			{what: "the last page " + of + ": p99", unit: "ms", limit: 20, versus: "(abs)"},
			{what: "a page in the middle " + of + ": p99", unit: "ms", limit: 40, versus: "(abs)"},
			{what: "a page of the index of prompts " + of + ": p99", unit: "ms"},
			{what: "a request of a search " + of + ": p99", unit: "ms"},
			{what: "these pages " + of + ": more memory", unit: "MB", limit: 64, versus: "(abs)"},
		}
	},
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.pages
		s, d := t.serveDriven(scratch, "conformance", append([]string{"--retain-bytes", "2147483648"}, unbounded...)...)
		d.bursts(p.events)
		before := must(control.Resident(s.pid))
		var values []float64
		middle := fmt.Sprintf("history?before=%d", p.events/2)
		for _, query := range []string{"history", middle, "turns?limit=10", "search?q=absent"} {
			var took []float64
			for range p.reads {
				began := time.Now()
				s.call(http.MethodGet, "sessions/"+s.session+"/"+query, "", nil)
				took = append(took, ms(time.Since(began)))
			}
			slices.Sort(took)
			values = append(values, quantile(took, 0.99))
		}
		return append(values, megabytes(must(control.Resident(s.pid))-before))
	},
}
