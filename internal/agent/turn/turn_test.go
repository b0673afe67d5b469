package turn

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestResponseEndCarriesTheTelemetryOfItsTurn(t *testing.T) { // R38, R39, R40
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		turn := New(host, "m", "p")
		turn.Finished("write", true, "Wrote a")
		hosttest.Must(t, turn.Start(t.Context()))
		time.Sleep(3 * time.Millisecond)
		hosttest.Must(t, turn.Think(t.Context(), "hm"))
		hosttest.Must(t, turn.Say(t.Context(), ""))
		hosttest.Must(t, turn.Say(t.Context(), "hi"))
		turn.Finished("bash", false, "Ran b")
		turn.Finished("write", true, "Wrote a")
		turn.Finished("read", true, "")
		time.Sleep(4 * time.Millisecond)
		hosttest.Must(t, turn.End(t.Context(), contracts.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, TotalTokens: 99}))

		got := hosttest.As[*contracts.ResponseEnd](host)[0]
		want := &contracts.ResponseEnd{
			ResponseID: got.ResponseID,
			Usage: contracts.Usage{
				InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, TotalTokens: 10,
				ModelID: "m", Provider: "p",
			},
			ToolsSummary: contracts.ToolsSummary{
				ToolsUsed: []string{"bash", "read", "write"}, CallsSucceeded: 3, CallsFailed: 1,
				SummaryLabels: []string{"Wrote a", "Ran b"},
			},
			DurationMS: 7,
			TTFTMS:     new(int64(3)),
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if !strings.HasPrefix(got.ResponseID, "resp_") || len(got.ResponseID) != len("resp_")+32 {
			t.Errorf("got response id %q, want resp_ and 32 hex digits", got.ResponseID)
		}
	})
}

func TestSecondResponseStartsFromNothing(t *testing.T) {
	host := hosttest.New(t)
	turn := New(host, "m", "p")
	turn.Finished("bash", true, "Ran b")
	for range 2 {
		hosttest.Must(t, turn.Start(t.Context()))
		hosttest.Must(t, turn.End(t.Context(), contracts.Usage{ModelID: "other"}))
	}
	ends := hosttest.As[*contracts.ResponseEnd](host)
	if ends[0].ResponseID == ends[1].ResponseID {
		t.Errorf("got the id %s twice, want a fresh one", ends[0].ResponseID)
	}
	second := ends[1].ToolsSummary
	if want := (contracts.ToolsSummary{ToolsUsed: []string{}}); !reflect.DeepEqual(second, want) {
		t.Errorf("second summary: got %+v, want %+v", second, want)
	}
	if ends[1].TTFTMS != nil {
		t.Errorf("ttft_ms without a chunk: got %d, want none", *ends[1].TTFTMS)
	}
	if got := ends[1].Usage.ModelID; got != "other" {
		t.Errorf("model: got %q, want the one given to End", got)
	}
}

func TestNothingIsSaidOutsideAResponse(t *testing.T) {
	host := hosttest.New(t)
	turn := New(host, "m", "p")
	if err := turn.Say(t.Context(), "hi"); !errors.Is(err, errNotResponding) {
		t.Errorf("Say: got error %v, want %v", err, errNotResponding)
	}
	if err := turn.End(t.Context(), contracts.Usage{}); !errors.Is(err, errNotResponding) {
		t.Errorf("End: got error %v, want %v", err, errNotResponding)
	}
	hosttest.Must(t, turn.Start(t.Context()))
	if err := turn.Start(t.Context()); err == nil {
		t.Error("second Start: got no error, want one")
	}
	if got := len(host.Shown()); got != 1 {
		t.Errorf("got %d events, want the one response_start", got)
	}
}

func TestListsOfAResponseAreBounded(t *testing.T) {
	host := hosttest.New(t)
	turn := New(host, "m", "p")
	for i := range 2 * maxListed {
		turn.Finished(strconv.Itoa(i), true, "Did "+strconv.Itoa(i))
	}
	hosttest.Must(t, turn.Start(t.Context()))
	hosttest.Must(t, turn.End(t.Context(), contracts.Usage{}))
	sum := hosttest.As[*contracts.ResponseEnd](host)[0].ToolsSummary
	if len(sum.ToolsUsed) != maxListed || len(sum.SummaryLabels) != maxListed || sum.CallsSucceeded != 2*maxListed {
		t.Errorf("got %d tools, %d labels, %d calls; want %d of each and all calls", len(sum.ToolsUsed), len(sum.SummaryLabels), sum.CallsSucceeded, maxListed)
	}
}
