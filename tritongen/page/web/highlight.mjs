// Text -> lines of [text, class] pieces, for TOML with expressions in its strings, and for Python.

const MATH = /(?<number>\b\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?\b)|(?<call>[A-Za-z_]\w*(?=\())|(?<axis>\b[A-Z]\w*\b)|(?<keyword>\b(?:and|or|not|if|else|in|is)\b)|(?<operator>[-+*\/%<>=!&|^~]+)/g;

const TOML = /(?<comment>#.*)|(?<header>^\s*\[\[?[^\]]*\]\]?)|(?<key>[A-Za-z0-9_-]+(?=\s*(?:\.\s*[A-Za-z0-9_-]+\s*)*=(?!=)))|(?<string>"(?:\\.|[^"\\])*"?|'[^']*'?)|(?<keyword>\b(?:true|false)\b)|(?<number>[-+]?\b\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?\b)/g;

const KEYWORDS = "False None True and as assert break class continue def del elif else except finally for from if import in is lambda not or pass raise return try while with yield".split(" ");
const PYTHON = new RegExp(
  [
    String.raw`(?<string>[rbf]{0,2}"""[^]*?(?:"""|$)|[rbf]{0,2}"(?:\\.|[^"\\\n])*"|[rbf]{0,2}'(?:\\.|[^'\\\n])*')`,
    String.raw`(?<comment>#[^\n]*)`,
    String.raw`(?<decorator>^[ \t]*@[\w.]+)`,
    String.raw`(?<keyword>\b(?:${KEYWORDS.join("|")})\b)`,
    String.raw`(?<number>\b(?:0x[\da-f]+|\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)\b)`,
    String.raw`(?<module>\b(?:tl|triton|torch|gl|math)(?=\.))`,
    String.raw`(?<call>\b[A-Za-z_]\w*(?=\())`,
    String.raw`(?<constant>\b[A-Z][A-Z\d_]+\b)`,
  ].join("|"),
  "gm",
);

function pieces(text, pattern) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    const [name] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    if (match.index > at) found.push([text.slice(at, match.index), ""]);
    found.push([match[0], name]);
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push([text.slice(at), ""]);
  return found;
}

export const math = (text) => pieces(text, MATH);

const PLAIN = ["summary", "name", "torch", "description", "namespace", "title"];

export function toml(text) {
  return text.split("\n").map((line) => {
    let key = "";
    return pieces(line, TOML).flatMap(([part, name]) => {
      if (name === "key") key = part;
      if (name !== "string" || PLAIN.includes(key)) return [[part, name]];
      return math(part).map(([piece, inner]) => [piece, inner || "string"]);
    });
  });
}

export function python(text) {
  const lines = [[]];
  for (const [part, name] of pieces(text, PYTHON)) {
    part.split("\n").forEach((line, place) => {
      if (place) lines.push([]);
      if (line) lines.at(-1).push([line, name]);
    });
  }
  return lines;
}

const escaped = (text) => text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

// One line as HTML; `marks` are {from, to, class} of columns that get a class of their own.
export function html(line, marks = []) {
  let column = 0;
  return line.map(([text, name]) => {
    const begin = column, end = (column += text.length);
    const cuts = marks.flatMap(({ from, to }) => [from, to]).filter((cut) => cut > begin && cut < end);
    const places = [begin, ...[...new Set(cuts)].sort((one, other) => one - other), end];
    return places.slice(1).map((to, place) => {
      const from = places[place];
      const classes = [name, ...marks.filter((one) => one.from < to && one.to > from).map((one) => one.class)];
      const shown = escaped(text.slice(from - begin, to - begin));
      const all = classes.filter(Boolean).join(" ");
      return all ? `<span class="${all}">${shown}</span>` : shown;
    }).join("");
  }).join("");
}

export { escaped };
