// Package heddle translates between clients of the Heddle headless protocol and
// sessions, and has the protocol's messages as types. A message is one JSON object on
// one line. The protocol has major version 0; later minor versions added fields.
package heddle
