package utility

import (
	"context"
	"log/slog"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxRefusalBytes bounds the text of a refusal, which may repeat the client's
// input.
const maxRefusalBytes = 8 << 10

// refuse returns the refusal of the operation with the given id.
func refuse(code contracts.Code, id, text string) *contracts.Error {
	text = abridge.Head(validText([]byte(text)), maxRefusalBytes)
	return &contracts.Error{Code: code, Type: contracts.ErrorTool, Message: text, RequestID: id}
}

// show publishes an event that no call waits for. If the session cannot take
// events any more, it logs the error and returns false.
func (h *Host) show(ev contracts.Event) bool {
	err := h.publish(h.ctx, ev)
	if err != nil && context.Cause(h.ctx) == nil {
		h.opts.Log.Error("cannot publish an event", slog.String("event", ev.EventType()), slog.Any("err", err))
	}
	return err == nil
}
