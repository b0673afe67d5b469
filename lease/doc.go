// Package lease decides which connection has control of a session. It has at most
// one holder at a time, a generation that fences off earlier holders, and an
// expiry.
//
// At most one id holds a lease. The generation grows with every grant to a new
// holder and never otherwise. An action admitted under an earlier generation is
// never accepted (D7). The package has no timer, notifies nobody and knows no roles
// or connections: ids are opaque, and the caller passes the time.
package lease
