/** A form for the input of a workflow, made of its input schema: text, numbers, choices; the rest as JSON. */

export interface Schema {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly format?: string;
}

/** What stands in the fields, by name: text as it was typed, and undefined where nothing was. */
export type Typed = Readonly<Record<string, string | boolean | undefined>>;

/** Whether a form helps: the input is an object with fields that are known. */
export const hasForm = (schema: Schema | undefined): schema is Schema & { properties: Record<string, Schema> } =>
  schema?.properties !== undefined && Object.keys(schema.properties).length > 0;

const typeOf = (schema: Schema): string => (typeof schema.type === "string" ? schema.type : (schema.type?.find((one) => one !== "null") ?? ""));

export function defaults(schema: Schema): Typed {
  return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, one]) => [name, shown(one, one.default)]));
}

/** A value as its field shows it. */
export function shown(schema: Schema, value: unknown): string | boolean | undefined {
  if (value === undefined) return undefined;
  if (typeOf(schema) === "boolean" && schema.enum === undefined) return value === true;
  return schema.enum === undefined && typeof value === "string" && typeOf(schema) === "string" ? value : JSON.stringify(value);
}

/** The input that the fields say. Throws an Error that names the field whose text is no value. */
export function valueOf(schema: Schema, typed: Typed): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [name, one] of Object.entries(schema.properties ?? {})) {
    const text = typed[name];
    if (text === undefined || text === "") {
      if (schema.required?.includes(name) && typeOf(one) === "boolean" && one.enum === undefined) found[name] = false;
      continue;
    }
    found[name] = typeof text === "boolean" ? text : read(name, one, text);
  }
  return found;
}

function read(name: string, schema: Schema, text: string): unknown {
  if (schema.enum === undefined && typeOf(schema) === "string") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new Error(`${name}: ${schema.enum === undefined && /number|integer/.test(typeOf(schema)) ? "no number" : "no JSON"}`);
  }
}

interface Props {
  schema: Schema;
  typed: Typed;
  change: (typed: Typed) => void;
}

export function SchemaForm({ schema, typed, change }: Props) {
  const set = (name: string, value: string | boolean | undefined): void => change({ ...typed, [name]: value });
  return (
    <div class="schema-form">
      {Object.entries(schema.properties ?? {}).map(([name, one]) => (
        <Field key={name} name={name} schema={one} required={schema.required?.includes(name) === true} value={typed[name]} set={(value) => set(name, value)} />
      ))}
    </div>
  );
}

interface FieldProps {
  name: string;
  schema: Schema;
  required: boolean;
  value: string | boolean | undefined;
  set: (value: string | boolean | undefined) => void;
}

function Field({ name, schema, required, value, set }: FieldProps) {
  const label = (
    <span>
      {schema.title ?? name}
      {required && <span class="required"> (required)</span>}
      {schema.description && <span class="quiet"> {schema.description}</span>}
    </span>
  );
  if (schema.enum === undefined && typeOf(schema) === "boolean") {
    return (
      <label class="check">
        <input type="checkbox" name={name} checked={value === true} onChange={(event) => set(event.currentTarget.checked)} />
        {label}
      </label>
    );
  }
  return (
    <label>
      {label}
      <Box name={name} schema={schema} required={required} value={typeof value === "string" ? value : ""} set={set} />
    </label>
  );
}

function Box({ name, schema, required, value, set }: FieldProps & { value: string }) {
  const type = typeOf(schema);
  if (schema.enum !== undefined) {
    return (
      <select name={name} required={required} value={value} onChange={(event) => set(event.currentTarget.value)}>
        <option value="" />
        {schema.enum.map((one) => (
          <option key={JSON.stringify(one)} value={JSON.stringify(one)}>
            {typeof one === "string" ? one : JSON.stringify(one)}
          </option>
        ))}
      </select>
    );
  }
  if (type === "string") return <input name={name} required={required} maxLength={schema.maxLength} value={value} onInput={(event) => set(event.currentTarget.value)} />;
  if (type === "integer" || type === "number") {
    return (
      <input
        type="number"
        name={name}
        required={required}
        step={type === "integer" ? "1" : "any"}
        min={schema.minimum}
        max={schema.maximum}
        value={value}
        onInput={(event) => set(event.currentTarget.value)}
      />
    );
  }
  return <textarea name={name} rows={3} required={required} placeholder={type === "array" ? "[…] as JSON" : type === "object" ? "{…} as JSON" : "JSON"} value={value} onInput={(event) => set(event.currentTarget.value)} />;
}
