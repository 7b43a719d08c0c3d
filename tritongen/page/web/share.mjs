// A spec in the fragment of the address: #rms_norm for one of the gallery, #spec=... for any other text.

const through = async (bytes, stream) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

export async function packed(text) {
  const bytes = await through(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export async function unpacked(word) {
  const bytes = Uint8Array.from(atob(word.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  return new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
}

export async function fragmentOf(text, specs) {
  const known = specs.find((one) => one.text === text);
  return known ? `#${known.name}` : `#spec=${await packed(text)}`;
}

// The text that a fragment stands for; undefined for none.
export async function textOf(fragment, specs) {
  const word = decodeURIComponent(fragment.slice(1));
  if (!word.startsWith("spec=")) return specs.find((one) => one.name === word)?.text;
  return unpacked(word.slice("spec=".length)).catch(() => undefined);
}
