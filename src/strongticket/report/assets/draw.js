"use strict";
// Shared by all drawings: elements, formatted numbers, scales. Text from files only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

function make(parent, tag, attributes = {}, text = null) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

function shape(parent, tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

function colourOf(series) {
  if (series.ramp === null || series.ramp === undefined) return `var(--${series.colour})`;
  const late = series.ramp >= 0.5, share = (200 * (series.ramp - (late ? 0.5 : 0))).toFixed(1);
  return `color-mix(in oklab, var(--ramp-${late ? "c" : "b"}) ${share}%, var(--ramp-${late ? "b" : "a"}))`;
}

// Typesets indices and exponents, as in n_K^(1/4) and 2^(−n/2).
function typeset(parent, text) {
  let from = 0;
  for (const found of text.matchAll(/\b(\w)(?:_(\w+))?\^\((.*?)\)/g)) {
    parent.append(text.slice(from, found.index) + found[1]);
    if (found[2]) make(parent, "sub", {}, found[2]);
    make(parent, "sup", {}, found[3]);
    from = found.index + found[0].length;
  }
  parent.append(text.slice(from));
}

// Breaks a text into lines of at most so many letters, as far as its words allow.
function inLines(text, letters) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1) ?? ""} ${word}`.trim();
    if (lines.length && longer.length <= letters) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// Moves things of given sizes as little as possible so that they do not overlap, keeping their order.
function apart(wanted, sizes, low, high) {
  const places = [...wanted], order = places.map((_, k) => k).sort((a, b) => wanted[a] - wanted[b]);
  let edge = low;
  for (const k of order) { places[k] = Math.max(places[k], edge + sizes[k] / 2); edge = places[k] + sizes[k] / 2; }
  edge = high;
  for (const k of order.reverse()) { places[k] = Math.min(places[k], edge - sizes[k] / 2); edge = places[k] - sizes[k] / 2; }
  return places;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function power(exponent) {
  return "10" + [...String(exponent)].map((sign) => RAISED[sign]).join("");
}

// Three digits, with powers of ten as readers write them.
function say(value, percent = false) {
  if (percent) return `${Number((100 * value).toPrecision(3))} %`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    const exponent = Math.floor(Math.log10(size) + 1e-12);
    const digits = (value / 10 ** exponent).toPrecision(3).replace("-", "−");
    return `${digits} × ${power(exponent)}`;
  }
  const text = size >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
}

// The value of a line between its points; null before the first and after the last.
function between(points, x) {
  const k = points.findIndex(([a]) => a > x);
  if (k < 1) return null;
  const [[a, b], [c, d]] = [points[k - 1], points[k]];
  return b + ((d - b) * (x - a)) / (c - a);
}

// Names of tensors break at their dots.
function addName(parent, name) {
  name.split(/(?<=\.)/).forEach((piece, place) => {
    if (place) make(parent, "wbr");
    parent.append(piece);
  });
}

// Math.min and Math.max for lists of any length; their own limit is some ten thousand values.
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return [low, high];
}

function niceStep(range, most) {
  const rough = range / most, unit = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((k) => k * unit).find((step) => step >= rough * (1 - 1e-9));
}

// A scale maps values to pixels and knows its ticks, each a value and a label.
function linearScale(low, high, from, to, most, percent, tight = false) {
  // Values that differ only by rounding count as one: there is no step between them.
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) {
    const reach = Math.abs(low) / 10 || 1;
    low -= reach; high += reach;
  }
  // The axis includes zero if the data come near it.
  if (!tight && low > 0 && low < 0.4 * high) low = 0;
  const step = niceStep(high - low, most);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let k = first; k <= last; k += 1) {
    const value = Number((k * step).toPrecision(12));
    ticks.push([value, percent ? `${Number((100 * value).toPrecision(6))} %` : plain(value)]);
  }
  const pad = (tight ? 0.025 : 0.05) * (high - low);
  const [start, end] = [low === 0 && !tight ? 0 : low - pad, high + pad];
  return { ticks, start, end, at: (value) => from + ((value - start) / (end - start)) * (to - from) };
}

function plain(value) {
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return say(value);
  return value.toLocaleString("en-US", { maximumFractionDigits: 6 }).replace("-", "−");
}

function logScale(low, high, from, to, most, wanted = []) {
  let start = Math.log10(low), end = Math.log10(high), ticks;
  if (end - start < 1e-9) { start -= 0.15; end += 0.15; }
  if (wanted.length) {
    ticks = wanted.map((value) => [value, plain(Number(value.toPrecision(4)))]);
    const pad = 0.03 * (end - start);
    start -= pad; end += pad;
  } else if (end - start < 1.4) {
    const pad = 0.06 * (end - start);
    start -= pad; end += pad;
    ticks = [];
    for (let decade = Math.floor(start); decade <= Math.ceil(end); decade += 1) {
      for (const k of end - start < 0.5 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 5]) {
        const value = Number((k * 10 ** decade).toPrecision(6));
        if (Math.log10(value) >= start && Math.log10(value) <= end) ticks.push([value, short(value)]);
      }
    }
  } else {
    start = Math.floor(start + 1e-9); end = Math.ceil(end - 1e-9);
    const step = Math.max(1, Math.ceil((end - start) / most));
    ticks = [];
    // Written out if all of them can be, otherwise all as powers.
    const written = start >= -3 && end <= 4;
    for (let decade = end; decade >= start; decade -= step) {
      ticks.unshift([10 ** decade, written || decade === 0 || decade === 1 ? plain(10 ** decade) : power(decade)]);
    }
  }
  const at = (value) => from + ((Math.log10(value) - start) / (end - start)) * (to - from);
  return { ticks, start: 10 ** start, end: 10 ** end, at };
}

function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return plain(value);
}

// A group of buttons, one of which is pressed.
function switcher(parent, label, names, chosen, choose) {
  const group = make(parent, "div", { class: "switch", role: "group", "aria-label": label });
  const buttons = names.map((name, place) => {
    const button = make(group, "button", { type: "button", "aria-pressed": String(place === chosen) }, name);
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      choose(place);
    });
    return button;
  });
  return group;
}
