// A browser and a push service, after RFC 8291 and RFC 8292. Without input it makes the
// keys of a subscription. With {Header, Body (base64), Keys} it verifies the token of the
// server, decrypts the message and writes both.
const crypto = require("node:crypto");
const input = require("node:fs").readFileSync(0, "utf8");
const hmac = (key, ...data) => crypto.createHmac("sha256", key).update(Buffer.concat(data)).digest();
const first = (length, buffer) => buffer.subarray(0, length);

if (input === "null") {
  const ecdh = crypto.createECDH("prime256v1");
  const p256dh = ecdh.generateKeys().toString("base64url");
  const auth = crypto.randomBytes(16).toString("base64url");
  process.stdout.write(JSON.stringify({ p256dh, auth, private: ecdh.getPrivateKey().toString("base64url") }));
  process.exit(0);
}

const { Header, Body, Keys } = JSON.parse(input);
const body = Buffer.from(Body, "base64");
if (Header["Content-Encoding"][0] !== "aes128gcm" || !(Number(Header["Ttl"][0]) > 0)) throw new Error("headers");

// The header of the content coding: salt, record size, length of the key id, key id.
const salt = body.subarray(0, 16);
const size = body.readUInt32BE(16);
const idLength = body[20];
const server = body.subarray(21, 21 + idLength);
const record = body.subarray(21 + idLength);
if (record.length > size) throw new Error("more than one record");

const ecdh = crypto.createECDH("prime256v1");
ecdh.setPrivateKey(Buffer.from(Keys.private, "base64url"));
const extracted = hmac(Buffer.from(Keys.auth, "base64url"), ecdh.computeSecret(server));
const one = Buffer.from([1]);
const ikm = hmac(extracted, Buffer.from("WebPush: info\0"), ecdh.getPublicKey(), server, one);
const prk = hmac(salt, ikm);
const key = first(16, hmac(prk, Buffer.from("Content-Encoding: aes128gcm\0"), one));
const nonce = first(12, hmac(prk, Buffer.from("Content-Encoding: nonce\0"), one));
const gcm = crypto.createDecipheriv("aes-128-gcm", key, nonce);
gcm.setAuthTag(record.subarray(-16));
const padded = Buffer.concat([gcm.update(record.subarray(0, -16)), gcm.final()]);
const end = padded.lastIndexOf(2);
if (end < 0 || padded.subarray(end + 1).some((byte) => byte !== 0)) throw new Error("padding");

const [, token, point] = Header["Authorization"][0].match(/^vapid t=([^,]+), k=(.+)$/);
const [head, claims, signature] = token.split(".");
const raw = Buffer.from(point, "base64url");
const publicKey = crypto.createPublicKey({
  format: "jwk",
  key: { kty: "EC", crv: "P-256", x: raw.subarray(1, 33).toString("base64url"), y: raw.subarray(33).toString("base64url") },
});
const valid = crypto.verify("sha256", Buffer.from(`${head}.${claims}`),
  { key: publicKey, dsaEncoding: "ieee-p1363" }, Buffer.from(signature, "base64url"));
const { alg } = JSON.parse(Buffer.from(head, "base64url"));
if (!valid || alg !== "ES256") throw new Error("token");
const { aud, exp, sub } = JSON.parse(Buffer.from(claims, "base64url"));
const now = Date.now() / 1000;
if (!(exp > now && exp <= now + 24 * 3600)) throw new Error("exp");
process.stdout.write(`${padded.subarray(0, end)} ${aud} ${sub} ${point}`);
