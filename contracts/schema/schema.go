// Package schema holds the JSON Schema of everything on the wire.
package schema

import _ "embed"

// Text is the schema as it is in the file.
//
//go:embed maestro.schema.json
var Text []byte
