// Sends requests with the token of the printed address, /#token=..., and reads the events.

// The path is part of the name, because a proxy may show several viewers at one origin.
const STORED = `pando-token ${location.pathname}`;
let token = "";

// Moves the token from the address to this tab alone, so that a copied address lacks the token.
export function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  try {
    if (given) sessionStorage.setItem(STORED, given);
    token = sessionStorage.getItem(STORED) ?? "";
  } catch {
    token = given ?? "";  // for a browser that stores nothing
  }
  if (given) history.replaceState(null, "", location.pathname);
  return Boolean(given);
}

export function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } });
}

// Yields each event's [kind, data] (an EventSource sends no headers), until the connection ends.
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let [begun, kind] = [[], ""];  // the parts of an unfinished line
  try {
    while (true) {
      const { done, value } = await reader.read().catch(() => ({ done: true }));
      if (done) return;
      const [first, ...rest] = value.split("\n");
      begun.push(first);
      for (const next of rest) {
        const line = begun.join("");
        begun = [next];
        if (line.startsWith("event: ")) kind = line.slice(7);
        if (line.startsWith("data: ")) yield [kind, JSON.parse(line.slice(6))];
      }
    }
  } finally {
    reader.cancel().catch(() => {});  // the viewer serves few streams at once
  }
}
