// What may come next in a spec: [offers, length of the word before the caret].

const WORD = /[A-Za-z_]\w*$/;
const DTYPES = "float int bool number any float8 float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 float8_e4m3fn float8_e5m2".split(" ");

// The tables of a spec as far as they can be read while it is being written: {table: {key: value}}.
export function tablesOf(text) {
  const tables = {};
  let table = {};
  for (const line of text.split("\n")) {
    const header = line.match(/^\s*\[\s*([\w.]+)/), pair = line.match(/^\s*([\w-]+)\s*=\s*(.*)/);
    if (header) table = tables[header[1]] ??= {};
    else if (pair) table[pair[1]] = pair[2];
  }
  return tables;
}

export function axesOf(tables) {
  const types = Object.values(tables.inputs ?? {}).flatMap((type) => type.match(/\[[^\]]*\]/)?.[0].match(/[A-Z]\w*/g) ?? []);
  return [...new Set([...types, ...Object.keys(tables.axes ?? {})])];
}

export function complete(text, caret, language, forced) {
  const before = text.slice(0, caret), line = before.slice(before.lastIndexOf("\n") + 1);
  if (/^[^"']*#/.test(line)) return [[], 0];
  const header = [...before.matchAll(/^[ \t]*\[\s*([\w.]+)\s*\]/gm)].at(-1)?.[1] ?? "";
  const word = line.match(WORD)?.[0] ?? "";
  const inString = (line.match(/(?<!\\)"/g) ?? []).length % 2 === 1;
  const offers = /^\s*\[\w*$/.test(line) ? ofTables(language) : inString ? ofText(header, line, text, language) : ofKeys(header, line, text, language);
  if (!word && !forced && !/\[$/.test(line)) return [[], 0];
  const lower = word.toLowerCase();
  const rank = ({ name }) => (name.startsWith(word) ? 0 : name.toLowerCase().startsWith(lower) ? 1 : 2);
  const seen = new Set();
  const found = offers
    .filter(({ name }) => name.toLowerCase().includes(lower) && !seen.has(name) && seen.add(name))
    .sort((one, other) => rank(one) - rank(other));
  return found.length && found.every(({ name }) => name === word) ? [[], 0] : [found.slice(0, 40), word.length];
}

const fieldsOf = (node) => Object.entries(node?.properties ?? {});

function ofTables({ schema }) {
  return fieldsOf(schema).map(([name, node]) => ({ name, kind: "table", detail: node.description, insert: `${name}]\n` }));
}

function ofKeys(header, line, text, { schema }) {
  if (!/^\s*\w*$/.test(line)) return /=\s*\w*$/.test(line) ? [{ name: "true", kind: "value" }, { name: "false", kind: "value" }] : [];
  const present = tablesOf(text)[header] ?? {};
  if (header === "outputs") return named(tablesOf(text).compute, "line").filter(({ name }) => !(name in present)).map((one) => ({ ...one, insert: `${one.name} = "` }));
  return fieldsOf(schema.properties[header])
    .filter(([name]) => !(name in present))
    .map(([name, node]) => ({ name, kind: "key", detail: node.description, insert: `${name} = ` }));
}

const named = (table, kind) => Object.entries(table ?? {}).map(([name, detail]) => ({ name, kind, detail }));

function ofText(header, line, text, { functions, schema }) {
  const tables = tablesOf(text), key = line.match(/^\s*([\w-]+)/)?.[1] ?? "";
  const axes = axesOf(tables).map((name) => ({ name, kind: "axis", detail: "" }));
  const dtypes = DTYPES.map((name) => ({ name, kind: "dtype", detail: "" }));
  const inputs = named(tables.inputs, "input"), lines = named(tables.compute, "line").filter(({ name }) => name !== key);
  if (header === "compute") {
    const calls = functions
      .filter(({ name, form }) => form.startsWith(`${name}(`))
      .map(({ name, form, summary }) => ({ name, kind: "function", detail: form, more: summary, insert: `${name}(` }));
    return [...lines, ...inputs, ...named(tables.params, "param"), ...axes, ...calls];
  }
  if (header === "inputs") return /\[[^\]]*$/.test(line.slice(line.indexOf('"'))) ? axes : [...named(tables.types, "type"), ...dtypes];
  if (header === "types") return dtypes;
  if (header === "axes") return [...axes, ...named(tables.params, "param")];
  if (header === "outputs") return /\[[^\]]*$/.test(line.slice(line.indexOf('"'))) ? axes : [{ name: "auto", kind: "dtype", detail: "torch's promotion" }, ...inputs, ...dtypes];
  if (header === "grad") return key === "save" ? lines : key === "wrt" ? inputs : words(schema, header, key);
  return words(schema, header, key);
}

function words(schema, header, key) {
  const node = schema.properties[header]?.properties?.[key];
  return (node?.enum ?? []).map((name) => ({ name: String(name), kind: "value", detail: "" }));
}
