// Prometheus text, as far as the service writes it: gauges, counters, and histograms as their sum and count.
const LINE = /^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)/, PART = /^(.*)_(sum|count|bucket)$/;

// {name, labels, kind, help} with {value}, or of a histogram with {sum, count}; in the order of the text.
export function parseMetrics(text) {
  const kinds = new Map(), helps = new Map(), out = new Map();
  for (const line of text.split("\n")) {
    const told = line.match(/^# (TYPE|HELP) (\S+) (.*)/);
    if (told) (told[1] === "TYPE" ? kinds : helps).set(told[2], told[3]);
    const found = told || line.startsWith("#") ? null : line.match(LINE);
    if (!found) continue;
    const part = found[1].match(PART), inside = part && kinds.get(part[1]) === "histogram";
    if (inside && part[2] === "bucket") continue;
    const name = inside ? part[1] : found[1], braces = found[2] || "", key = name + braces;
    if (!out.has(key)) out.set(key, {name, labels: [...braces.matchAll(/\w+="((?:[^"\\]|\\.)*)"/g)].map(l => l[1].replace(/\\(.)/g, "$1")), kind: kinds.get(name) || "gauge", help: helps.get(name) || ""});
    out.get(key)[inside ? part[2] : "value"] = Number(found[3].replace("Inf", "Infinity"));
  }
  return [...out.values()];
}
