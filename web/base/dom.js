// Elements from plain values. Text is always text: nothing here, or anywhere in the page, parses markup.
export const $ = id => document.getElementById(id);

export function make(tag, text, cls) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (cls) made.className = cls;
  return made;
}

// Attributes by name; "on..." are listeners, and false or undefined leaves one out.
export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(c => c !== undefined && c !== null && c !== false));
  return made;
}

// Once what is there now is on the screen; of a page that nobody sees, at once.
export const afterPaint = run => document.hidden ? setTimeout(run) : requestAnimationFrame(() => setTimeout(run));

export const button = (words, run, more) => el("button", {type: "button", onclick: run, ...more}, words);

// Pairs of words and values, those without a value left out.
export function facts(pairs, cls) {
  const list = make("dl", undefined, "facts");
  for (const [name, value] of pairs) {
    if (value === undefined || value === null || value === "") continue;
    const shown = make("dd", undefined, cls);
    shown.append(value);
    list.append(make("dt", name), shown);
  }
  return list;
}

export function options(box, all, values, words = v => v) {
  box.replaceChildren(...(all === null ? [] : [new Option(all, "")]), ...values.map(v => new Option(words(v), v)));
  box.hidden = values.length < (all === null ? 1 : 2);
  return box;
}

const tips = {box: null};
// Words beside the pointer; none hides them.
export function tip(event, words) {
  if (!tips.box) {
    tips.box = el("div", {id: "tip", role: "status"});
    document.body.append(tips.box);
  }
  const box = tips.box;
  box.style.display = words ? "block" : "none";
  if (!words) return;
  box.textContent = words;
  box.style.left = Math.max(0, Math.min(innerWidth - box.offsetWidth - 8, event.clientX + 12)) + "px";
  box.style.top = Math.min(innerHeight - box.offsetHeight - 8, event.clientY + 14) + "px";
}
