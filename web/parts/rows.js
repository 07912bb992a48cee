// The pairs of a comparison: one array each, as `compare rows` and a report hold them.
import {num} from "../base/numbers.js";

export const NAME = 0, ROLE = 1, STEP = 2, HIT = 3, PASS = 4, STATE = 5, ERROR = 6, FLOOR = 7, LARGEST = 8, COSINE = 9;
export const SHAPE = 10, DTYPE = 11, NOTE = 12, PARTNER = 13, KEPT = 14;

export const isBad = r => r[STATE] === "mismatch" || r[STATE] === "incomparable";
export const titleOf = r => (r[ROLE] === "input" ? "→ " : "") + r[NAME] + (r[STEP] < 0 ? "" : ` · step ${r[STEP]}`) + (r[PASS] ? ` · ${r[PASS]}` : "") + (r[HIT] ? ` · hit ${r[HIT]}` : "");
export const stepWords = s => Number(s) < 0 ? "outside the loop" : `step ${s}`;

export class Rows {
  constructor(list, factor, first) {
    this.list = list, this.factor = factor, this.first = first;
    this.steps = this.distinct(STEP).sort((a, b) => a - b);
  }
  get length() { return this.list.length; }
  at(i) { return this.list[i]; }
  limit(i) { return this.factor * num(this.list[i][FLOOR]); }
  bad(i) { return isBad(this.list[i]); }
  distinct(column) { return [...new Set(this.list.map(r => r[column]))]; }
  over(i) {  // the error in units of what is allowed
    return this.list[i][STATE] === "unread" ? -1 : num(this.list[i][ERROR]) / Math.max(1e-30, this.limit(i));
  }
  worst() {
    let best = 0;
    this.list.forEach((_, i) => this.over(i) > this.over(best) && (best = i));
    return best;
  }
  // The next bad one in either direction; where there is none, the same.
  nextBad(i, by) {
    for (let k = i + by; k >= 0 && k < this.length; k += by) if (this.bad(k)) return k;
    return i;
  }
  // The same tensor at another step.
  otherStep(i, by) {
    const r = this.list[i], same = k => [NAME, ROLE, HIT, PASS].every(c => this.list[k][c] === r[c]);
    for (let k = i + by; k >= 0 && k < this.length; k += by) if (same(k) && this.list[k][STEP] !== r[STEP]) return k;
    return i;
  }
}
