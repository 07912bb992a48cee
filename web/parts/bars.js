// The histogram of one tensor, or of two on one axis.
import {el, make} from "../base/dom.js";
import {sampleWords, short} from "../base/numbers.js";
import {css} from "./canvas.js";

export function barsFigure(h, lone = ", both the same") {
  const canvas = el("canvas", {class: "bars", role: "img", "aria-label": `histogram of values from ${short(h.low)} to ${short(h.high)}`});
  const n = h.reference.length, width = 1000 / n;
  canvas.width = 1000, canvas.height = 400;
  const g = canvas.getContext("2d"), top = Math.max(1, ...h.reference, ...(h.candidate || []));
  const draw = (counts, name, from, share) => {
    g.fillStyle = css(name);
    counts.forEach((v, i) => {
      const y = v ? Math.max(3, Math.log10(1 + v) / Math.log10(1 + top) * 385) : 0;
      g.fillRect((i + from) * width, 400 - y, width * share, y);
    });
  };
  if (h.candidate) draw(h.reference, "--ref", .06, .44), draw(h.candidate, "--cand", .5, .44);
  else draw(h.reference, "--ref", .06, .88);
  const caption = make("figcaption", `values from ${short(h.low)} to ${short(h.high)}, counts on a log scale${sampleWords(h)}`);
  const key = (words, cls) => make("b", words, cls);
  if (h.candidate) caption.append(": ", key("reference", "ref"), " and ", key("yours", "cand"));
  else if (lone) caption.append(": ", key("reference", "ref"), lone);
  return el("figure", {class: "wide"}, canvas, caption);
}
