// Forms from JSON Schema, as far as elicitations use it: an object of simple fields. The server that
// sent the form checks the values again.
import { useState } from "preact/hooks";
import { Label, Windowed } from "./long";

type Choice = { value: string; title: string };
type Field = {
  name: string;
  title: string;
  hint: string;
  pattern: string; // checked by the server only: an expression of somebody else can take forever
  required: boolean;
  type: "string" | "number" | "integer" | "boolean" | "array";
  choices: Choice[];
  initial: unknown;
  format: string;
  min?: number;
  max?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
};
export type Values = Record<string, unknown>;

const fewFields = 20; // that are drawn at once
const fewChoices = 50; // that are drawn at once, without a field to find one

type Schema = Record<string, unknown>;
const object = (v: unknown): Schema | undefined =>
  typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Schema) : undefined;
const text = (v: unknown): string => (typeof v === "string" ? v : "");
const number = (v: unknown): number | undefined => (typeof v === "number" ? v : undefined);

/** fieldsOf returns the fields of a form, or nothing if the schema is not that of a simple form. */
export function fieldsOf(schema: unknown): Field[] | undefined {
  const properties = object(object(schema)?.properties);
  if (!properties) return undefined;
  const names = Object.keys(properties);
  const required = new Set(Array.isArray(object(schema)?.required) ? (object(schema)!.required as unknown[]) : []);
  const fields: Field[] = [];
  for (const name of names) {
    const s = object(properties[name]);
    const type = text(s?.type) || (Array.isArray(s?.enum) || Array.isArray(s?.oneOf) ? "string" : "");
    if (!s || !["string", "number", "integer", "boolean", "array"].includes(type)) return undefined;
    const choices = choicesOf(type === "array" ? object(s.items) : s);
    if (type === "array" && choices.length === 0) return undefined;
    fields.push({
      name,
      type: type as Field["type"],
      title: text(s.title) || name,
      hint: text(s.description),
      pattern: text(s.pattern),
      required: required.has(name),
      choices,
      initial: s.default,
      format: text(s.format),
      min: number(s.minimum),
      max: number(s.maximum),
      minLength: number(s.minLength),
      maxLength: number(s.maxLength),
      minItems: number(s.minItems),
      maxItems: number(s.maxItems),
    });
  }
  return fields;
}

function choicesOf(schema: Schema | undefined): Choice[] {
  const listed = [schema?.oneOf, schema?.anyOf].flatMap((l) => (Array.isArray(l) ? l : []));
  const named = listed
    .map(object)
    .filter((c) => typeof c?.const === "string")
    .map((c) => ({ value: c!.const as string, title: text(c!.title) || (c!.const as string) }));
  const titles = Array.isArray(schema?.enumNames) ? schema.enumNames : [];
  const values = Array.isArray(schema?.enum) ? schema.enum : [];
  return [
    ...named,
    ...values
      .filter((v) => typeof v === "string")
      .map((v, i) => ({ value: v as string, title: text(titles[i]) || (v as string) })),
  ];
}

export function initialValues(fields: Field[]): Values {
  return Object.fromEntries(
    fields.filter((f) => f.initial !== undefined && f.initial !== null).map((f) => [f.name, f.initial]),
  );
}

/** wrong says what is wrong with a value, or nothing. */
export function wrong(f: Field, entered: unknown): string {
  const value = valueOf(f, entered);
  const empty = value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
  if (empty) return f.required && f.type !== "boolean" ? "Needed." : "";
  if (f.type === "number" || f.type === "integer") {
    if (typeof value !== "number" || !Number.isFinite(value)) return "Want a number.";
    if (f.type === "integer" && !Number.isInteger(value)) return "Want a whole number.";
    // JavaScript would send another number than was typed.
    if (!Number.isSafeInteger(value) && /^-?\d+$/.test(String(entered).trim())) return "Want at most 15 digits.";
    if (f.min !== undefined && value < f.min) return `Want at least ${f.min}.`;
    if (f.max !== undefined && value > f.max) return `Want at most ${f.max}.`;
  }
  if (typeof value === "string") {
    const length = [...value].length;
    if (f.minLength !== undefined && length < f.minLength) return `Want at least ${f.minLength} characters.`;
    if (f.maxLength !== undefined && length > f.maxLength) return `Want at most ${f.maxLength} characters.`;
    if (f.format === "email" && !/^[^@\s]+@[^@\s]+$/.test(value)) return "Want an e-mail address.";
    if (f.format === "uri" && !URL.canParse(value)) return "Want an address such as https://example.com.";
  }
  if (Array.isArray(value)) {
    if (f.minItems !== undefined && value.length < f.minItems) return `Choose at least ${f.minItems}.`;
    if (f.maxItems !== undefined && value.length > f.maxItems) return `Choose at most ${f.maxItems}.`;
  }
  return "";
}

/** content returns the values to send: empty fields are left out. */
export function content(fields: Field[], values: Values): Values {
  const all: Values = {};
  for (const f of fields) {
    const value = valueOf(f, values[f.name] ?? (f.type === "boolean" && f.required ? false : undefined));
    if (value !== undefined && value !== "") all[f.name] = value;
  }
  return all;
}

/** valueOf is what is sent for what the form has. The form keeps a number as it is typed: "0.0" becomes "0.05". */
function valueOf(f: Field, entered: unknown): unknown {
  if (typeof entered !== "string" || (f.type !== "number" && f.type !== "integer")) return entered;
  const trimmed = entered.trim();
  return /^-?\d+(\.\d+)?(e-?\d+)?$/i.test(trimmed) ? Number(trimmed) : trimmed;
}

const inputModes: Record<string, "email" | "url"> = { email: "email", uri: "url" };

export function Fields({
  fields,
  values,
  errors,
  change,
  go,
}: {
  fields: Field[];
  values: Values;
  errors: Record<string, string>;
  change: (v: Values) => void;
  go: { current: ((i: number) => void) | undefined };
}) {
  const set = (name: string, value: unknown) => change({ ...values, [name]: value });
  const part = (i: number) => {
    const f = fields[i]!;
    return (
      <FormField
        key={f.name}
        field={f}
        value={values[f.name]}
        error={errors[f.name] ?? ""}
        set={(v) => set(f.name, v)}
      />
    );
  };
  return <Windowed few={fewFields} count={fields.length} height={() => 68} part={part} go={go} />;
}

function FormField({
  field: f,
  value,
  error,
  set,
}: {
  field: Field;
  value: unknown;
  error: string;
  set: (v: unknown) => void;
}) {
  const [id] = useState(() => `field-${Math.random().toString(36).slice(2)}`);
  const title = (
    <>
      <Label text={f.title} />
      {f.required && <span class="hint"> (needed)</span>}
    </>
  );
  const about = (
    <>
      {f.hint && (
        <span class="hint">
          <Label text={f.hint} />
        </span>
      )}
      {f.pattern && (
        <span class="hint">
          Must match <Label text={f.pattern} />
        </span>
      )}
      {error && (
        <span class="wrong" id={`${id}-wrong`}>
          {error}
        </span>
      )}
    </>
  );
  const common = { id, "aria-invalid": error !== "", "aria-describedby": error ? `${id}-wrong` : undefined };
  if (f.type === "boolean") {
    return (
      <fieldset>
        <label class="choice">
          <input type="checkbox" {...common} checked={value === true} onChange={(e) => set(e.currentTarget.checked)} />
          <span>
            {title} {about}
          </span>
        </label>
      </fieldset>
    );
  }
  if (f.choices.length > 0 && (f.type === "array" || f.choices.length <= 6 || f.choices.length > fewChoices)) {
    const many = f.type === "array";
    const chosen = many && Array.isArray(value) ? (value as string[]) : [];
    return (
      <fieldset>
        <legend>{title}</legend>
        {about}
        <Choices
          name={id}
          choices={f.choices}
          many={many}
          chosen={many ? chosen : value === undefined ? [] : [String(value)]}
          set={(list) => set(many ? list : list[0])}
        />
      </fieldset>
    );
  }
  return (
    <fieldset>
      <label class="label" for={id}>
        {title}
      </label>
      {about}
      {f.choices.length > 0 ? (
        <select class="field" {...common} value={text(value)} onChange={(e) => set(e.currentTarget.value)}>
          <option value="">Choose</option>
          {f.choices.map((c) => (
            <option value={c.value}>{c.title}</option>
          ))}
        </select>
      ) : f.type === "string" && f.format === "date" ? (
        <input class="field" {...common} type="date" value={text(value)} onInput={(e) => set(e.currentTarget.value)} />
      ) : (
        <input
          class="field"
          {...common}
          inputMode={f.type === "string" ? inputModes[f.format] : "decimal"}
          value={String(value ?? "")}
          onInput={(e) => set(e.currentTarget.value)}
        />
      )}
    </fieldset>
  );
}

/** Choices is a list of options of which one or many can be chosen. A long one has a field that finds them. */
export function Choices({
  name,
  choices,
  many,
  chosen,
  set,
}: {
  name: string;
  choices: (Choice & { hint?: string })[];
  many: boolean;
  chosen: string[];
  set: (chosen: string[]) => void;
}) {
  const [query, setQuery] = useState("");
  const low = query.toLowerCase();
  const found = low ? choices.filter((c) => c.title.toLowerCase().includes(low)) : choices;
  const part = (i: number) => {
    const c = found[i]!;
    return (
      <label class="choice" key={c.value}>
        <input
          type={many ? "checkbox" : "radio"}
          name={name}
          checked={chosen.includes(c.value)}
          onChange={(e) =>
            set(
              !many ? [c.value] : e.currentTarget.checked ? [...chosen, c.value] : chosen.filter((v) => v !== c.value),
            )
          }
        />
        <span>
          <Label text={c.title} />
          {c.hint && (
            <span class="hint">
              {" "}
              <Label text={c.hint} />
            </span>
          )}
        </span>
      </label>
    );
  };
  if (choices.length <= fewChoices) {
    return <Windowed few={fewChoices} count={found.length} height={() => 34} part={part} />;
  }
  return (
    <div class="choices">
      <input
        class="field"
        aria-label="Find a choice"
        placeholder={`Find one of ${choices.length.toLocaleString("en")}`}
        value={query}
        onInput={(e) => setQuery(e.currentTarget.value)}
        onKeyDown={(e) => e.key === "Enter" && e.preventDefault()} // which would send the form
      />
      {chosen.length > 0 && <ChosenOf choices={choices} chosen={chosen} />}
      <div class="list">
        <Windowed key={query} count={found.length} height={() => 34} part={part} />
      </div>
    </div>
  );
}

const mostNamed = 20; // choices

// ChosenOf names the chosen entries, which may be far away in the list.
function ChosenOf({ choices, chosen }: { choices: Choice[]; chosen: string[] }) {
  const named = chosen.slice(0, mostNamed).map((v) => choices.find((c) => c.value === v)?.title ?? v);
  const more = chosen.length - named.length;
  return (
    <p class="hint">
      Chosen: <Label text={named.join(", ") + (more > 0 ? ` and ${more} more` : "")} />
    </p>
  );
}
