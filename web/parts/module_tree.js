// Names with dots as a tree of modules in a long table. Leaves are numbers, modules are their paths.
export class ModuleTree {
  // `nameOf(i)` of each leaf in execution order; `sums(leaves)` is what a module tells about what is below it.
  constructor(count, nameOf) {
    this.root = {path: "", label: "", level: -1, modules: new Map(), leaves: [], all: 0};
    this.byPath = new Map(), this.homeOf = [], this.open = new Set(), this.nameOf = nameOf;
    this.grow(count);
    // One or two modules on top would say little.
    let node = this.root;
    while (node.modules.size === 1 && !node.leaves.length) node = node.modules.values().next().value, this.open.add(node.path);
  }
  // Up to so many leaves: those that were there stay as they are.
  grow(count) {
    for (let i = this.homeOf.length; i < count; ++i) {
      const parts = this.nameOf(i).split(".");
      let node = this.root;
      for (let k = 0; k < parts.length; ++k) {
        ++node.all;
        const path = parts.slice(0, k + 1).join(".");
        let next = node.modules.get(parts[k]);
        if (!next) {
          next = {path, label: parts[k], level: k, modules: new Map(), leaves: [], all: 0, parent: node};
          node.modules.set(parts[k], next), this.byPath.set(path, next);
        }
        node = next;
      }
      ++node.all, node.leaves.push(i), this.homeOf[i] = node;
    }
  }
  // What is in sight, top to bottom.
  visible() {
    const out = [], walk = node => {
      for (const child of node.modules.values()) {
        if (!child.modules.size && child.leaves.length === 1) {
          out.push(child.leaves[0]);
          continue;
        }
        out.push(child.path);
        if (this.open.has(child.path)) child.leaves.forEach(i => out.push(i)), walk(child);
      }
    };
    walk(this.root);
    return out;
  }
  level(id) {
    if (typeof id === "string") return this.byPath.get(id).level;
    const home = this.homeOf[id];
    return home.level + (home.modules.size || home.leaves.length > 1 ? 1 : 0);
  }
  reveal(i) {
    for (let node = this.homeOf[i]; node && node.path; node = node.parent) this.open.add(node.path);
  }
  toggle(path, open = !this.open.has(path)) {
    if (open) this.open.add(path);
    else this.open.delete(path);
  }
  leavesOf(path) {
    const out = [], walk = node => (out.push(...node.leaves), node.modules.forEach(walk));
    walk(this.byPath.get(path));
    return out;
  }
  // The first cell of a row: indented, with its fold.
  cell(box, id, label, swatch) {
    const indent = document.createElement("span"), fold = document.createElement("span"), words = document.createElement("span");
    indent.className = "indent", indent.style.setProperty("--level", this.level(id));
    fold.className = "fold", fold.textContent = typeof id === "string" ? this.open.has(id) ? "▾" : "▸" : "";
    words.textContent = label, box.title = label;
    box.append(indent, fold);
    if (swatch !== undefined) {
      const colour = document.createElement("span");
      colour.className = "swatch", colour.style.setProperty("--swatch", swatch);
      box.append(colour);
    }
    box.append(words);
  }
}
