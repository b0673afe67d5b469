// Package serverreq keeps the questions the runtime has put to its clients
// until each is answered, expires, is withdrawn or is cancelled.
//
// It promises that every request ends exactly once, that the first answer wins
// and a later one learns how the request ended (D8), and that only the
// combinations of verdict and resolver of section 3.4 come out. It sends
// nothing, arms no timer, and does not ask who may answer.
package serverreq
