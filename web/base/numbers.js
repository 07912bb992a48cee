// Numbers as people read them. Strict JSON has no infinities: they travel as words.
export const num = v => typeof v === "number" ? v : v === "Infinity" ? Infinity : v === "-Infinity" ? -Infinity : NaN;

export function short(v) {
  const x = num(v);
  if (!isFinite(x)) return v === null || v === undefined ? "–" : String(v);
  if (x === 0) return "0";
  return Math.abs(x) >= .01 && Math.abs(x) < 1e4 ? x.toPrecision(4) : x.toExponential(2);
}

export function bytesText(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) n /= 1000, ++k;
  return `${k && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[k]}`;
}

// Of a view that does not show every value.
export const sampleWords = m => m.sampled ? `, of ${m.looked_at.toLocaleString("en")} values in evenly spread places` : "";

export function secsText(s) {
  if (!isFinite(s)) return "–";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  return s < 3600 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}

// "2026-01-31T12:00:00.123Z" in the reader's own time, short.
export function timeText(iso) {
  const at = new Date(iso);
  if (isNaN(at)) return String(iso ?? "");
  const two = n => String(n).padStart(2, "0"), today = new Date().toDateString() === at.toDateString();
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return today ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock.slice(0, 5)}`;
}

// Part of a name, or a glob.
export function matcher(text) {
  if (!/[*?]/.test(text)) return name => name.toLowerCase().includes(text.toLowerCase());
  const glob = new RegExp("^" + text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".") + "$", "i");
  return name => glob.test(name);
}
