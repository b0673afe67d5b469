// Verifies a webhook as https://www.standardwebhooks.com describes it. Standard input has
// {Header, Body (base64), Secret}. It writes "valid" or "invalid".
const { createHmac, timingSafeEqual } = require("node:crypto");
const { Header, Body, Secret } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const header = (name) => Header[name][0];
const key = Buffer.from(Secret.slice("whsec_".length), "base64");
const at = header("Webhook-Timestamp");
const content = Buffer.concat([Buffer.from(`${header("Webhook-Id")}.${at}.`), Buffer.from(Body, "base64")]);
const expected = createHmac("sha256", key).update(content).digest();
const fresh = Math.abs(Date.now() / 1000 - Number(at)) < 300;
const valid = header("Webhook-Signature").split(" ").some((signature) => {
  const [version, text] = signature.split(",");
  const given = Buffer.from(text, "base64");
  return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
});
process.stdout.write(fresh && valid ? "valid" : "invalid");
