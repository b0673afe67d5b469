package sleep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("got %v after %v, want nothing after an hour", err, time.Since(began))
		}
		over := errors.New("over")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { stop(over) })
		began = time.Now()
		if err := For(ctx, time.Hour); err != over || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v, want the cause after a minute", err, time.Since(began))
		}
		if err := For(ctx, 0); err != over {
			t.Errorf("got %v from a context that has ended, want its cause", err)
		}
	})
}
