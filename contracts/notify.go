package contracts

// A DeliveryList says what was sent to the receivers of notifications.
type DeliveryList struct {
	Receivers []ReceiverState `json:"receivers"`
}

// A ReceiverState describes one receiver of notifications. The counts go on after a restart of
// the server.
type ReceiverState struct {
	Name      string       `json:"name"`
	Kind      string       `json:"kind" wire:"oneof=webhook|ntfy|web_push"`
	Waiting   int64        `json:"waiting"`   // notifications that are not sent yet
	Delivered int64        `json:"delivered"` // accepted by the receiver
	Skipped   int64        `json:"skipped"`   // not needed: the question ended first, or somebody was looking
	Failed    int64        `json:"failed"`    // given up
	Dead      []DeadLetter `json:"dead"`      // the last of those given up, the oldest first
}

// A DeadLetter is a notification that was given up.
type DeadLetter struct {
	SessionID string `json:"session_id"`
	RequestID string `json:"request_id"`
	Attempts  int64  `json:"attempts"`
	Reason    string `json:"reason"`
	At        string `json:"at"` // ISO-8601 UTC
}

// A PushRequest is the body of a registration for Web Push. To end the registration,
// or to test it, only the endpoint is needed.
type PushRequest struct {
	Endpoint      string   `json:"endpoint"` // of the PushSubscription of the browser
	Keys          PushKeys `json:"keys,omitzero"`
	QuietHours    string   `json:"quietHours,omitempty"`    // such as 22:00-07:00; notifications wait until the end
	TimeZone      string   `json:"timeZone,omitempty"`      // of the quiet hours, such as Europe/Berlin
	UnlessLooking bool     `json:"unlessLooking,omitempty"` // send nothing while the principal follows the inbox
	Test          bool     `json:"test,omitempty"`          // send a test notification to the registered browser, and change nothing
}

// PushKeys are the keys of the PushSubscription, in base64url.
type PushKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// A PushAnswer has what a browser needs to subscribe.
type PushAnswer struct {
	PublicKey     string        `json:"public_key"`    // applicationServerKey, in base64url
	Subscriptions int64         `json:"subscriptions"` // of the principal
	Browsers      []PushBrowser `json:"browsers"`      // the subscriptions of the principal
}

// A PushBrowser is a browser that is registered for Web Push.
type PushBrowser struct {
	ID            string `json:"id"` // SHA-256 of the endpoint, which is secret, in hex
	QuietHours    string `json:"quiet_hours,omitempty"`
	TimeZone      string `json:"time_zone,omitempty"`
	UnlessLooking bool   `json:"unless_looking,omitempty"`
}
