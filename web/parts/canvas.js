// What everything that is drawn shares: the style sheet's colours, sharp canvases, and the scale from blue to red.
export const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as sharp as the screen; its context is in CSS pixels.
export function prepared(canvas) {
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  const wide = Math.max(1, Math.round(w * ratio)), high = Math.max(1, Math.round(h * ratio));
  if (canvas.width !== wide || canvas.height !== high) canvas.width = wide, canvas.height = high;
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  g.font = "11px system-ui, sans-serif";
  return [g, w, h];
}

// -1 to 1 in 255 steps as [blue, white, red]; what is not finite is pink.
const SCALE = new Uint32Array(256);
for (let i = 0; i < 255; ++i) {
  const x = (i - 127) / 127, k = Math.round(255 * (1 - Math.abs(x)));
  SCALE[i] = x < 0 ? 0xff000000 | 255 << 16 | k << 8 | k : 0xff000000 | k << 16 | k << 8 | 255;
}
SCALE[255] = 0xffff00ff;

// Paints numbers, in parts of `limit`, one a pixel.
export function paintCells(canvas, cells, width, height, limit) {
  canvas.width = width, canvas.height = height;
  const g = canvas.getContext("2d"), image = g.createImageData(width, height), out = new Uint32Array(image.data.buffer);
  const by = limit > 0 ? 127 / limit : 0;
  for (let i = 0; i < out.length; ++i) {
    const v = cells[i];
    if (v !== v || v === Infinity || v === -Infinity) out[i] = SCALE[255];
    else out[i] = SCALE[Math.round(Math.max(-127, Math.min(127, v * by))) + 127];
  }
  g.putImageData(image, 0, 0);
}

// Draws again when the element's size or the system's colours change.
export function redrawn(element, draw) {
  new ResizeObserver(() => draw()).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
}
