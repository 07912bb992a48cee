// Searches the sections of all pages. Every word must occur; words in headings count for more.
const field = document.getElementById("search"), list = document.getElementById("results");
const MOST_RESULTS = 12, TEXT_AROUND = 70;
const sections = searchIndex.map(([address, page, title, text]) => ({address, page, title, text, low: text.toLowerCase(), lowTitle: title.toLowerCase(), lowPage: page.toLowerCase()}));

// The list of pages is folded on a narrow window only.
const fold = document.querySelector(".fold"), wide = matchMedia("(min-width: 761px)");
const unfold = () => fold.toggleAttribute("open", wide.matches);
wide.addEventListener("change", unfold);
unfold();

function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const inTitle = section.lowTitle.includes(word), inText = section.low.includes(word), inPage = section.lowPage.includes(word);
    if (!inTitle && !inText && !inPage) return 0;
    sum += 12 * inTitle + 6 * inPage + (inText ? Math.min(4, section.low.split(word).length - 1) : 0);
  }
  return sum;
}

function withMarks(text, words) {
  const out = document.createDocumentFragment(), low = text.toLowerCase();
  let at = 0;
  while (at < text.length) {
    let next = -1, length = 0;
    for (const word of words) {
      const found = low.indexOf(word, at);
      if (found >= 0 && (next < 0 || found < next)) [next, length] = [found, word.length];
    }
    if (next < 0) break;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(next, next + length);
    out.append(text.slice(at, next), mark);
    at = next + length;
  }
  out.append(text.slice(at));
  return out;
}

function around(section, words) {
  const first = Math.max(0, Math.min(...words.map(word => section.low.indexOf(word)).filter(at => at >= 0), section.text.length) - TEXT_AROUND);
  const text = section.text.slice(first, first + 2 * TEXT_AROUND);
  return (first > 0 ? "… " : "") + text + (first + text.length < section.text.length ? " …" : "");
}

function row(section, words) {
  const item = document.createElement("li"), link = document.createElement("a"), small = document.createElement("small");
  link.href = section.address;
  link.append(withMarks(section.title === section.page ? section.title : `${section.page} › ${section.title}`, words));
  small.append(withMarks(around(section, words), words));
  link.append(small);
  item.append(link);
  return item;
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.hidden = words.length === 0;
  if (!words.length) return;
  const found = sections.map(section => [score(section, words), section]).filter(([points]) => points > 0)
    .sort((a, b) => b[0] - a[0]).slice(0, MOST_RESULTS);
  list.replaceChildren(...found.map(([, section]) => row(section, words)));
  if (!found.length) {
    const none = document.createElement("li");
    none.className = "none";
    none.textContent = "Nothing found";
    list.append(none);
  }
}

field.addEventListener("input", show);
field.addEventListener("focus", show);
document.addEventListener("click", event => { if (!event.target.closest(".search")) list.hidden = true; });
list.addEventListener("click", () => { list.hidden = true; });
document.addEventListener("keydown", event => {
  if (event.key === "/" && document.activeElement !== field && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if (event.key === "Escape") {
    list.hidden = true;
    field.blur();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !list.hidden && event.target.closest(".search")) {
    event.preventDefault();
    const links = [field, ...list.querySelectorAll("a")], now = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, now + (event.key === "ArrowDown" ? 1 : -1)))].focus();
  } else if (event.key === "Enter" && document.activeElement === field) {
    list.querySelector("a")?.click();
  }
});
