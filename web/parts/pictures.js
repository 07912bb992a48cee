// Pictures of both runs side by side with their difference, as a report holds them: three bytes a pixel.
import {el, make} from "../base/dom.js";

export function rgbFigure(p, words, other) {
  const canvas = el("canvas", {role: "img", "aria-label": words}), raw = atob(p.rgb), second = other ? atob(other.rgb) : null;
  canvas.width = p.width, canvas.height = p.height;
  const g = canvas.getContext("2d"), image = g.createImageData(p.width, p.height);
  for (let i = 0, n = p.width * p.height; i < n; ++i) {
    for (let k = 0; k < 3; ++k) {
      const a = raw.charCodeAt(3 * i + k);
      image.data[4 * i + k] = second ? Math.min(255, 4 * Math.abs(a - second.charCodeAt(3 * i + k))) : a;
    }
    image.data[4 * i + 3] = 255;
  }
  g.putImageData(image, 0, 0);
  return el("figure", {}, canvas, make("figcaption", words));
}

export const likenessWords = p => {
  const fixed = (v, n) => typeof v === "number" ? v.toFixed(n) : v;
  return `PSNR ${fixed(p.psnr, 2)} dB, SSIM ${fixed(p.ssim, 5)}`;
};

export function pictureRow(p) {
  const row = el("div", {class: "row"}, rgbFigure(p.reference, "reference"), rgbFigure(p.candidate, "yours"));
  if (p.reference.width === p.candidate.width && p.reference.height === p.candidate.height)
    row.append(rgbFigure(p.candidate, "difference × 4", p.reference));
  return [make("div", `${p.name}: ${likenessWords(p)}`), row];
}
