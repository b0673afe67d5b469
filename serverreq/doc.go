// Package serverreq holds the questions that the runtime has asked its clients
// until each is answered, expires, is withdrawn or is cancelled.
//
// Every request ends exactly once. An approval may need the votes of several
// principals; of other requests the first answer is used, and a later one is
// refused with how the request ended (D8). Only legal combinations of verdict and
// resolver occur (R52; see [Legal]). The package sends nothing, has no timer, and
// does not check who may answer.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package serverreq
