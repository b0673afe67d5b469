package mask

import (
	"context"
	"log/slog"
)

// Log returns a log whose messages and texts pass through hide on their way to
// log. Groups are left as they are.
func Log(log *slog.Logger, hide func(string) string) *slog.Logger {
	return slog.New(&handler{log.Handler(), hide})
}

type handler struct {
	slog.Handler
	hide func(string) string
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	masked := slog.NewRecord(r.Time, r.Level, h.hide(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.mask(a))
		return true
	})
	return h.Handler.Handle(ctx, masked)
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		masked = append(masked, h.mask(a))
	}
	return &handler{h.Handler.WithAttrs(masked), h.hide}
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.hide}
}

// mask returns an attribute that was passed through hide if it is a text or an
// error.
func (h *handler) mask(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch err, ok := a.Value.Any().(error); {
	case ok:
		a.Value = slog.StringValue(h.hide(err.Error()))
	case a.Value.Kind() == slog.KindString:
		a.Value = slog.StringValue(h.hide(a.Value.String()))
	}
	return a
}
