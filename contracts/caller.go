package contracts

// A Caller is who made one HTTP request, and what its headers say beside the
// credential.
type Caller struct {
	Principal      Principal
	Role           Role   // viewer or controller if a header asks for it, else empty
	Token          string // the connection's secret, or empty
	ConnectionID   string // the connection it speaks for, or empty
	SubscriptionID string // the subscription, or empty
	Trace          string // W3C traceparent, or empty
}

// A StreamRequest is what a request for the event stream asks for.
type StreamRequest struct {
	SubscriptionID string         // continue this one; empty makes one for the stream
	Cursor         *int64         // the last entry applied; nil asks for a snapshot
	Epoch          string         // the journal the cursor counts in; empty if the client does not know
	OptOuts        []Notification // of a stream without a subscription
}
