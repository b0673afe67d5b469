package utility

import (
	"context"
	"log/slog"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxRefusalBytes bounds the text of a refusal, which may repeat what the client
// said.
const maxRefusalBytes = 8 << 10

// refuse makes the refusal of the operation that the client called id.
func refuse(code contracts.Code, id, text string) *contracts.Error {
	text = abridge.Head(validText([]byte(text)), maxRefusalBytes)
	return &contracts.Error{Code: code, Type: contracts.ErrorTool, Message: text, RequestID: id}
}

// show publishes what no call waits for. It reports false if the session cannot
// take it any more; that is told to the operator.
func (h *Host) show(ev contracts.Event) bool {
	err := h.publish(h.ctx, ev)
	if err != nil && context.Cause(h.ctx) == nil {
		h.opts.Log.Error("publish", slog.String("event", ev.EventType()), slog.Any("err", err))
	}
	return err == nil
}
