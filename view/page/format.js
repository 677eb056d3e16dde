// Numbers as text, with their units. A missing value becomes a dash.

const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

// Returns a finite number, or else null: cells of the stream may be missing or null.
export function finite(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function shown(value, text) {
  return finite(value) === null ? NONE : text(value);
}

export const count = (value) => shown(value, whole.format);
export const short = (value) => shown(value, compact.format);
export const significant = (value) => shown(value, (v) => String(Number(v.toPrecision(4))));
export const percent = (value) => shown(value, (v) => `${v.toFixed(2)} %`);
export const share = (value) => shown(value, (v) => `${(100 * v).toFixed(2)} %`);

export function milliseconds(value) {
  return shown(value, (v) => {
    if (v >= 60_000) return duration(v / 1000);
    if (v >= 1000) return `${(v / 1000).toFixed(2)} s`;
    return `${v < 10 ? Number(v.toFixed(1)) : Math.round(v)} ms`;
  });
}

// Returns for example "42 s", "12 min 05 s", "3 h 12 min", "2 d 03 h".
export function duration(seconds) {
  return shown(seconds, (v) => {
    const s = Math.round(v);
    const two = (part) => String(Math.floor(part)).padStart(2, "0");
    if (v < 10) return `${v.toFixed(1)} s`;
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
    if (s < 86_400) return `${Math.floor(s / 3600)} h ${two((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86_400)} d ${two((s % 86_400) / 3600)} h`;
  });
}

// Returns for example "1 worker", "2 workers".
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
