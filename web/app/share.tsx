// Links that let somebody else watch, answer or drive: made, shown as text and QR code, listed and revoked.
import { useEffect, useRef, useState } from "preact/hooks";
import { encode } from "uqr";
import type { Role, ShareAnswer } from "../../contracts/ts/maestro";
import { ago, exact } from "./format";
import { useSeen } from "./keys";
import { act, inWords, now, openID, server } from "./store";

const roles: [Role, string][] = [
  ["viewer", "can watch"],
  ["approver", "can watch and answer questions"],
  ["controller", "can drive"],
];
const hour = 3600;
const times: [number, string][] = [
  [hour, "for an hour"],
  [24 * hour, "for a day"],
  [7 * 24 * hour, "for a week"],
  [30 * 24 * hour, "for 30 days"],
];

export function Shares() {
  const id = openID.value!;
  const [made, setMade] = useState<ShareAnswer>();
  const seen = useSeen(made?.share_id ?? "");
  const making = useRef(false);
  const [list, setList] = useState<ShareAnswer[]>([]);
  const [refused, setRefused] = useState("");
  const read = () =>
    server.shares(id).then(
      (l) => setList(l.shares),
      (err) => setRefused(inWords(err)),
    );
  useEffect(() => void read(), []);
  const make = async (e: SubmitEvent) => {
    e.preventDefault();
    if (making.current || (made && !seen)) return; // the second click of a double click
    making.current = true;
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "");
    try {
      const label = text("label").trim() || undefined;
      setMade(
        await server.share(id, { role: text("role") as Role, expiresInSeconds: Number(text("time")), label }),
      );
      setRefused("");
    } catch (err) {
      setRefused(inWords(err));
    }
    making.current = false;
    await read();
  };
  const revoke = async (share: ShareAnswer) => {
    const done = await act(() => server.revoke(id, share.share_id));
    if (done) setMade((m) => (m?.share_id === share.share_id ? undefined : m));
    await read();
  };
  return (
    <section class="shares">
      <h2>Share</h2>
      <form onSubmit={(e) => void make(e)}>
        <input class="field" name="label" aria-label="For whom" placeholder="For whom" maxLength={60} />
        <Choice name="role" label="What the link allows" options={roles} />
        <Choice name="time" label="How long the link works" options={times} chosen={24 * hour} />
        <button class="button">Make a link</button>
      </form>
      {refused && (
        <p class="meta" role="alert">
          {refused}
        </p>
      )}
      {made && <Link key={made.share_id} link={new URL(`/#share=${made.token}`, location.href).href} />}
      {list.length > 0 && <h2>Links</h2>}
      <ul>
        {list.map((s) => (
          <li class="person" key={s.share_id}>
            <span class="grow">
              {s.label || "Without a name"} <span class="meta">{roles.find(([r]) => r === s.role)?.[1]}</span>
              <br />
              <span class="meta">
                {s.uses ? `used ${ago(Date.parse(s.last_used_at!), now.value)}` : "not used yet"}, until{" "}
                {exact(Date.parse(s.expires_at))}
              </span>
            </span>
            <button
              type="button"
              class="button quiet"
              aria-label={`Revoke the link of ${s.label || "somebody without a name"}`}
              onClick={() => void revoke(s)}
            >
              Revoke
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Choice<T extends string | number>(props: { name: string; label: string; options: [T, string][]; chosen?: T }) {
  return (
    <select class="field" name={props.name} aria-label={props.label}>
      {props.options.map(([value, words]) => (
        <option value={value} selected={value === props.chosen}>
          {words}
        </option>
      ))}
    </select>
  );
}

/** Link shows a new link, which the server never tells again. */
function Link({ link }: { link: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard.writeText(link).then(() => setCopied(true));
  return (
    <div class="link">
      <p class="meta">Whoever has this link can use it. It is shown only now.</p>
      <input class="field" aria-label="Link" readOnly value={link} onFocus={(e) => e.currentTarget.select()} />
      {navigator.clipboard && (
        <button type="button" class="button" onClick={copy}>
          {copied ? "Copied" : "Copy"}
        </button>
      )}
      <Code text={link} />
    </div>
  );
}

/** Code is a QR code: dark on light in both themes, because some cameras read no other. */
function Code({ text }: { text: string }) {
  const { size, data } = encode(text, { border: 2 });
  const squares = data.flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x} ${y}h1v1h-1z`] : [])));
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label="The link as a QR code"
      shape-rendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={squares.join("")} fill="#000" />
    </svg>
  );
}
