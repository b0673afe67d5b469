// Package lease decides who may drive a session: at most one holder at a time,
// a generation that fences off whoever held it before, and the arithmetic of
// expiry.
//
// It promises that no two ids hold a lease at once, that the generation grows
// with every new holder and never otherwise, and that an action admitted under
// an earlier generation is never accepted (D7). It arms no timer, tells nobody
// and knows nothing of roles or connections: ids are opaque, and the caller
// says what time it is.
package lease
