package contracts

// A Caller is the sender of one HTTP request: its credential and its headers.
type Caller struct {
	Principal      Principal
	Role           Role   // viewer or controller if a header asks for it, otherwise empty
	Token          string // the connection's secret, or empty
	ConnectionID   string // the connection it acts for, or empty
	SubscriptionID string // the subscription, or empty
	Trace          string // W3C traceparent, or empty
}

// A StreamRequest holds the parameters of a request for the event stream.
type StreamRequest struct {
	SubscriptionID string         // subscription to continue; empty makes one for this stream
	Cursor         *int64         // the last entry applied; nil asks for a snapshot
	Epoch          string         // epoch of the cursor; empty if the client does not know it
	OptOuts        []Notification // used only without SubscriptionID
}
