// Small charts of a few series over one axis.
import {el, tip} from "../base/dom.js";
import {num, short} from "../base/numbers.js";
import {css, prepared, redrawn} from "./canvas.js";

// series: [{name, values, colour}], one value a label; band: [low, high] values that are shaded.
export function lineChart(labels, series, {cls = "chart", words = "chart", band, chosen, onpick, axis = true} = {}) {
  const canvas = el("canvas", {class: cls, role: "img", "aria-label": words}), n = labels.length;
  const chart = {canvas, chosen, set(more, fresh) { labels = more, series = fresh, chart.draw(); }};
  const left = axis ? 58 : 2, bottom = axis ? 16 : 2;
  const X = (k, w) => left + (labels.length > 1 ? k / (labels.length - 1) : .5) * (w - left - 8);
  chart.draw = () => {
    if (!canvas.clientWidth) return;
    const [g, w, h] = prepared(canvas), all = [...series, ...(band ? [{values: band[0]}, {values: band[1]}] : [])].flatMap(s => s.values.map(num)).filter(isFinite);
    if (!all.length) return;
    let low = Math.min(...all), high = Math.max(...all);
    if (low === high) low -= Math.abs(low) * .1 || 1, high += Math.abs(high) * .1 || 1;
    const Y = v => 6 + (high - v) / (high - low) * (h - 6 - bottom);
    if (axis) {
      g.fillStyle = css("--dim"), g.strokeStyle = css("--line");
      for (const v of [low, (low + high) / 2, high]) {
        g.beginPath(), g.moveTo(left, Y(v)), g.lineTo(w - 8, Y(v)), g.stroke();
        g.fillText(short(v), 4, Math.min(h - bottom, Math.max(10, Y(v) + 4)), left - 8);
      }
      const every = Math.max(1, Math.ceil(labels.length / Math.max(2, w / 60)));
      labels.forEach((l, k) => k % every || g.fillText(String(l), X(k, w) - 3, h - 3));
    }
    if (band) {
      g.globalAlpha = .16, g.fillStyle = css("--ref"), g.beginPath();
      band[0].forEach((v, k) => g.lineTo(X(k, w), Y(num(v))));
      for (let k = labels.length - 1; k >= 0; --k) g.lineTo(X(k, w), Y(num(band[1][k])));
      g.fill(), g.globalAlpha = 1;
    }
    for (const s of series) {
      g.strokeStyle = g.fillStyle = css(s.colour || "--ref"), g.lineWidth = 1.5, g.beginPath();
      s.values.forEach((v, k) => isFinite(num(v)) && g.lineTo(X(k, w), Y(num(v))));
      g.stroke(), g.lineWidth = 1;
      if (labels.length <= 80 && axis) s.values.forEach((v, k) => isFinite(num(v)) && (g.beginPath(), g.arc(X(k, w), Y(num(v)), 2.2, 0, 7), g.fill()));
    }
    if (chart.chosen >= 0) g.strokeStyle = css("--mark"), g.beginPath(), g.moveTo(X(chart.chosen, w), 4), g.lineTo(X(chart.chosen, w), h - bottom), g.stroke();
  };
  const at = e => {
    const box = canvas.getBoundingClientRect();
    return Math.max(0, Math.min(labels.length - 1, Math.round((e.clientX - box.left - left) / (box.width - left - 8) * (labels.length - 1))));
  };
  canvas.addEventListener("mousemove", e => labels.length && tip(e, `${labels[at(e)]}: ${series.map(s => `${s.name} ${short(s.values[at(e)])}`).join(", ")}`));
  canvas.addEventListener("mouseleave", e => tip(e));
  if (onpick) canvas.style.cursor = "pointer", canvas.addEventListener("click", e => onpick(at(e)));
  redrawn(canvas, chart.draw);
  return chart;
}
