// <ls-picture>: the pictures of both runs, one over the other with a slider, flickering, or as their difference.
import {button, el, make} from "../base/dom.js";

export class PictureCompare extends HTMLElement {
  connectedCallback() {
    if (this.stage) return;
    this.under = el("img", {alt: "reference"}), this.top = el("img", {alt: "yours"}), this.over = el("div", {class: "over"}, this.top);
    this.slider = el("input", {type: "range", min: 0, max: 100, value: 50, "aria-label": "how much of yours is shown", oninput: () => this.cut()});
    this.stage = el("div", {class: "compare-marks"}, this.under, this.over), this.words = make("div", "", "dim");
    this.modes = ["slider", "flicker", "side by side", "difference"].map(mode => button(mode[0].toUpperCase() + mode.slice(1), () => this.mode(mode), {"aria-pressed": "false"}));
    this.append(el("div", {class: "filters"}, ...this.modes), this.stage, this.slider, this.words);
    this.stage.addEventListener("pointermove", e => {
      if (this.now !== "slider" || !(e.buttons & 1)) return;
      const box = this.stage.getBoundingClientRect();
      this.slider.value = (e.clientX - box.left) / box.width * 100, this.cut();
    });
  }
  disconnectedCallback() { clearInterval(this.timer); }
  // Addresses of three pictures; the last may be null.
  show(reference, candidate, difference, words) {
    this.sources = {reference, candidate, difference};
    this.words.textContent = words, this.modes[3].disabled = !difference;
    this.mode("slider");
  }
  cut() { this.over.style.clipPath = `inset(0 0 0 ${this.slider.value}%)`; }
  mode(now) {
    clearInterval(this.timer), this.now = now;
    this.modes.forEach(b => b.setAttribute("aria-pressed", String(b.textContent.toLowerCase() === now)));
    const side = now === "side by side";
    this.stage.style.cssText = "", this.over.style.clipPath = "", this.over.style.visibility = "visible";
    this.stage.classList.toggle("beside", side);
    this.under.src = this.sources.reference, this.top.src = now === "difference" ? this.sources.difference : this.sources.candidate;
    this.slider.hidden = now !== "slider";
    if (now === "slider") this.cut();
    if (now === "flicker") {
      let on = true;
      this.timer = setInterval(() => this.over.style.visibility = (on = !on) ? "visible" : "hidden", 450);
    }
  }
}
customElements.define("ls-picture", PictureCompare);
