// Checks the schemas in ../schema with the tools of others, and what stands on standard
// input against them: lines of JSON with the name of a definition and a value.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import { Validator } from "@seriousme/openapi-schema-validator";

const read = (name) => JSON.parse(readFileSync(new URL(`../schema/maestro.${name}.json`, import.meta.url), "utf8"));

const openAPI = await new Validator().validate(read("openapi"));
assert.ok(openAPI.valid, JSON.stringify(openAPI.errors, null, 1));

const specs = createRequire(import.meta.url)("@asyncapi/specs/schemas/3.0.0-without-$id.json");
const asyncAPI = new Ajv({ strict: false, validateFormats: false }).compile(specs);
assert.ok(asyncAPI(read("asyncapi")), JSON.stringify(asyncAPI.errors, null, 1));

const closed = new Ajv2020({ strict: false }).addSchema(read("schema"), "wire");
const open = new Ajv2020({ strict: false }).addSchema(read("client.schema"), "wire");
const fits = (ajv, def, value) => {
  const check = ajv.getSchema(`wire#/$defs/${def}`);
  assert.ok(check, `no definition ${def}`);
  return check(value) ? "" : JSON.stringify(check.errors).slice(0, 1000);
};

const seen = {};
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { def, value } = JSON.parse(line);
  assert.equal(fits(closed, def, value), "", `${def}, closed: ${line.slice(0, 500)}`);
  assert.equal(fits(open, def, value), "", `${def}, open: ${line.slice(0, 500)}`);
  const later = { ...value, a_later_addition: 1 };
  assert.equal(fits(open, def, later), "", `${def} with an addition, open: ${line.slice(0, 500)}`);
  assert.notEqual(fits(closed, def, later), "", `${def} with an addition, closed: ${line.slice(0, 500)}`);
  seen[def] = (seen[def] ?? 0) + 1;
}
for (const def of ["Event", "ServerFrame"]) {
  assert.equal(fits(open, def, { type: "of_a_later_version" }), "");
  assert.notEqual(fits(closed, def, { type: "of_a_later_version" }), "");
}
console.log(JSON.stringify(seen));
