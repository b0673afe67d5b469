package check_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// A dashboard is what tests need of the JSON of Grafana.
type dashboard struct {
	Panels []struct {
		ID          int
		Title       string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "grafana/maestro.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Fatal("got no panels")
	}
	return d
}

// query returns an expression of the dashboard as Grafana sends it.
func query(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(expr)
}

// TestDashboardHasTheFormOfGrafana decodes the dashboard strictly into the types of Grafana,
// those of panels and queries included.
func TestDashboardHasTheFormOfGrafana(t *testing.T) {
	t.Parallel()
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	decode := func(text string) string {
		//lint:ignore SA1019 all versions of Grafana import this form; only the newest know the other
		var d sdk.Dashboard
		if err := d.UnmarshalJSONStrict([]byte(text)); err != nil { // an empty list of errors is not nil
			return err.Error()
		}
		return ""
	}
	text := read(t, "grafana/maestro.json")
	if got := decode(text); got != "" {
		t.Error(got)
	}
	for _, key := range []string{`"refresh"`, `"gridPos"`, `"fillOpacity"`, `"legendFormat"`} {
		if decode(strings.Replace(text, key, `"unheardOf"`, 1)) == "" {
			t.Errorf("got no error for an unknown key in the place of %s", key)
		}
	}
}

func TestPanelsAreDescribedAndDoNotOverlap(t *testing.T) {
	t.Parallel()
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: got a second one with its id, or no title, description or query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q: got cells that %q has, or that are outside", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
