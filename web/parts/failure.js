// What went wrong, in the service's own words.
import {button, el, make} from "../base/dom.js";

export function failureCard(error, again) {
  const words = error.status === 404 ? "It is not there any more, or never was." : "";
  return el("div", {class: "card error", role: "alert"}, make("div", error.message), words && make("div", words, "dim"),
    error.hint && make("div", `Try ${error.hint}`, "dim"), again && button("Try again", again));
}

export const emptyBox = (words, command) => el("div", {class: "empty"}, make("div", words), command && make("pre", command));

export async function copyText(text, box) {
  try { await navigator.clipboard.writeText(text); } catch { return; }
  const was = box.textContent;
  box.textContent = "Copied", setTimeout(() => box.textContent = was, 1200);
}

export function saveAs(name, parts, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob(parts, {type})), link = el("a", {href: address, download: name});
  link.click(), setTimeout(() => URL.revokeObjectURL(address), 10000);
}
