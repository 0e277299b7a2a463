// Lines, points and spreads on two axes, with a cursor that a mouse, a finger and the arrow keys all move.

class Chart {
  constructor(root, spec, label) {
    this.spec = spec;
    this.hidden = new Set();
    this.view = 0;
    this.scales = spec.views.map((view) => view.y_scales[0]);
    this.cursor = -1;
    this.controls = make(root, "div", { class: "controls" });
    const stage = make(root, "div", { class: "stage" });
    this.title = root.closest("figure").querySelector(".figure-title");
    this.plot = make(stage, "div", {
      class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart",
      "aria-label": `${label}. Arrow keys move through the points.`,
    });
    this.tip = make(this.plot, "div", { class: "tip", hidden: "", "aria-hidden": "true" });
    this.said = make(root, "p", { class: "quiet", "aria-live": "polite" });
    this.legend = make(stage, "ul", { class: "legend", "aria-label": "Lines; press to hide or show" });
    this.note = make(root, "p", { class: "note" });
    this.addControls();
    this.listen();
    this.addLegend();
    new ResizeObserver(() => this.plot.clientWidth !== this.width && this.draw()).observe(this.plot);
    this.draw();
  }

  get now() { return this.spec.views[this.view]; }

  addControls() {
    this.controls.replaceChildren();
    const { views } = this.spec;
    if (views.length > 1) {
      switcher(this.controls, "Show", views.map((view) => view.name), this.view, (place) => {
        this.view = place;
        this.cursor = -1;
        this.hidden.clear();
        this.scaleSwitch();
        this.addLegend();
        this.draw();
      });
    }
    this.scaleBox = make(this.controls, "span");
    this.scaleSwitch();
    if (!this.controls.querySelector("button")) this.controls.remove(); // one view, one scale
  }

  scaleSwitch() {
    this.scaleBox.replaceChildren();
    const scales = this.now.y_scales;
    if (scales.length < 2) return;
    const names = ["linear", "log"].filter((name) => scales.includes(name));
    const chosen = names.indexOf(this.scales[this.view]);
    switcher(this.scaleBox, "Vertical scale", names.map((name) => (name === "log" ? "Log" : "Linear")), chosen, (place) => {
      this.scales[this.view] = names[place];
      this.draw();
    });
  }

  addLegend() {
    this.legend.replaceChildren();
    this.note.textContent = this.now.note;
    this.title.replaceChildren();
    typeset(this.title, this.now.says || this.spec.title);
    const { series: all } = this.now, named = all.filter((series) => !series.follows);
    // Many steps of a ramp become a bar of colours with names at its ends.
    const bar = named.length > 5 && named.every((series) => series.ramp !== null);
    this.legend.className = bar ? "legend colour-bar" : "legend";
    all.forEach((series, place) => {
      if (series.follows) return;
      const button = make(make(this.legend, "li"), "button", { type: "button", "aria-pressed": "true" });
      if (bar) {
        button.title = series.name;
        button.style.setProperty("--colour", colourOf(series));
        const end = series === named[0] || series === named.at(-1);
        make(button, "span", { class: end ? "" : "quiet" }, series.name);
      } else {
        addSwatch(button, series);
        typeset(make(button, "span"), series.name);
      }
      for (const [event, shown] of [["pointerenter", series], ["focus", series], ["pointerleave", null], ["blur", null]]) {
        button.addEventListener(event, () => this.showBand(shown));
      }
      button.addEventListener("click", () => {
        const together = [place];
        for (let next = place + 1; all[next]?.follows; next += 1) together.push(next);
        const hide = !this.hidden.has(place);
        together.forEach((one) => (hide ? this.hidden.add(one) : this.hidden.delete(one)));
        button.setAttribute("aria-pressed", String(!this.hidden.has(place)));
        this.cursor = -1;
        this.draw();
      });
    });
    for (const series of this.now.key) {
      const item = make(this.legend, "li", { class: "meaning" });
      addSwatch(item, series);
      typeset(make(item, "span"), series.name);
    }
  }

  // Names go at the ends of their lines if there is room beside the plot, otherwise below it.
  placeLegend(box, y, log) {
    const items = [...this.legend.children];
    const named = this.now.series.filter((series) => !series.follows);
    const wanted = items.map((_, k) => {
      const ends = named[k]?.points.filter(([, b]) => !log || b > 0).at(-1);
      return ends ? Math.min(Math.max(y.at(ends[1]), box.top), box.bottom) : box.bottom + k;
    });
    const places = apart(wanted, items.map((item) => item.offsetHeight), box.top - 16, box.bottom + 40);
    items.forEach((item, k) => { item.style.top = `${places[k] - item.offsetHeight / 2}px`; item.style.left = `${box.right + 10}px`; });
  }

  // Whether the names fit beside the plot: it must be wide enough, and the names short.
  get endsFit() {
    this.legend.classList.remove("ends");
    const items = [...this.legend.children];
    if (this.width < 640 || items.length < 2 || this.legend.classList.contains("colour-bar")) return false;
    this.legend.classList.add("ends");
    const fit = items.reduce((sum, item) => sum + item.offsetHeight, 0) < this.height - 40;
    this.legend.classList.toggle("ends", fit);
    return fit;
  }

  get shown() { return this.now.series.filter((_, place) => !this.hidden.has(place)); }

  draw() {
    this.width = this.plot.clientWidth;
    if (this.width < 120) return; // hidden, or about to be laid out
    const view = this.now, narrow = this.width < 520;
    const height = this.height = Math.round(Math.min(400, Math.max(290, this.width * 0.5)));
    const atEnds = this.endsFit;
    const box = { left: narrow ? 50 : 60, right: this.width - (atEnds ? 215 : 14), top: 34 };
    const name = inLines(view.x, box.right / 6.4);
    box.bottom = height - 30 - 14 * name.length;
    this.box = box;
    const log = this.scales[this.view] === "log";
    const [x, y] = this.axes(view, box, log, narrow);
    this.svg?.remove();
    this.svg = shape(this.plot, "svg", { viewBox: `0 0 ${this.width} ${height}`, height, role: "img" });
    shape(this.svg, "title", {}, `${this.spec.title}: ${view.name}, ${view.y} against ${view.x}`);
    this.svg.setAttribute("data-view", view.name);
    this.svg.setAttribute("data-scale", log ? "log" : "linear");
    this.drawAxes(view, name, box, x, y);
    const clip = `clip-${Math.random().toString(36).slice(2)}`;
    const limits = shape(shape(this.svg, "defs"), "clipPath", { id: clip });
    const frame = { x: box.left, y: box.top - 6, width: box.right - box.left + 7, height: box.bottom - box.top + 12 };
    shape(limits, "rect", frame);
    const inside = shape(this.svg, "g", { "clip-path": `url(#${clip})` });
    if (view.diagonal) this.drawDiagonal(view, box, x, y, inside);
    this.bands = new Map();
    for (const series of this.shown) this.drawSeries(series, x, y, log, inside);
    this.drawLabels(x, y, inside); // last, so that no line crosses them
    // Several bands would hide each other, so only that of the line under the pointer is shown.
    this.oneBand = this.bands.size > 2;
    this.showBand(null);
    if (atEnds) this.placeLegend(box, y, log);
    this.pointer = shape(this.svg, "g");
    this.stops = this.findStops(x, y);
    this.showCursor(false);
  }

  showBand(series) {
    if (this.oneBand) this.bands.forEach((band, of) => band.setAttribute("visibility", of === series ? "visible" : "hidden"));
  }

  axes(view, box, log, narrow) {
    const xs = [], ys = [];
    for (const series of this.shown.length ? this.shown : view.series) {
      for (const [a, b] of series.points) { xs.push(a); ys.push(b); }
      for (const values of series.each ?? []) for (const value of values) ys.push(value);
      if (view.y_range && !log) continue; // bars may leave the frame
      for (const ends of [series.low, series.high]) {
        // Errors are never negative, so bars are cut at zero and do not extend the axis.
        const signed = view.zero || series.points.some(([, b]) => b < 0);
        const shown = (value) => (log ? value > 0 && series.spread === "band" : signed || value >= 0);
        for (const value of ends ?? []) if (shown(value)) ys.push(value);
      }
    }
    for (const [place] of view.upright) xs.push(place);
    if (log) ys.forEach((value, place) => { if (!(value > 0)) ys[place] = Infinity; });
    const finite = ys.filter(Number.isFinite);
    const [left, right] = extent(xs);
    let [low, high] = extent(finite);
    if (view.y_range && !log) [low, high] = [Math.min(low, view.y_range[0]), Math.max(high, view.y_range[1])];
    if (view.zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
    if (view.percent) { low = 0; high = Math.max(high, 1); }
    if (!(low <= high)) [low, high] = [log ? 0.1 : 0, 1]; // nothing to show
    const across = narrow ? 6 : 9;
    const x = view.x_scale === "log"
      ? logScale(left, right, box.left + 4, box.right - 4, across, view.x_ticks)
      : linearScale(left, right, box.left + 4, box.right - 4, across, false, true);
    const y = log
      ? logScale(low, high, box.bottom, box.top, 8)
      : linearScale(low, high, box.bottom, box.top, 6, view.percent);
    return [x, y];
  }

  drawAxes(view, name, box, x, y) {
    const axes = shape(this.svg, "g", { "aria-hidden": "true" });
    for (const [value, label] of y.ticks) {
      const at = y.at(value);
      if (at < box.top - 1 || at > box.bottom + 1) continue;
      shape(axes, "line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at });
      shape(axes, "text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, label);
    }
    let free = -Infinity;
    for (const [value, label] of x.ticks) {
      const at = x.at(value);
      const half = label.length * 3.6;
      if (at < box.left - 1 || at > box.right + 1 || at - half < free) continue;
      free = at + half + 6;
      shape(axes, "text", { x: at, y: box.bottom + 18, "text-anchor": "middle" }, label);
    }
    const floor = view.zero ? y.at(0) : box.bottom;
    shape(axes, "line", { class: "base", x1: box.left, x2: box.right, y1: floor, y2: floor });
    shape(axes, "text", { class: "name", x: 0, y: 14 }, view.y);
    name.forEach((line, k) => shape(axes, "text", { class: "name", x: box.right, y: box.bottom + 38 + 14 * k, "text-anchor": "end" }, line));
    for (const [value, name] of view.upright) {
      const at = x.at(value);
      shape(axes, "line", { class: "upright", x1: at, x2: at, y1: box.top, y2: box.bottom });
      const late = at > box.right - 90;
      shape(axes, "text", { x: at + (late ? -5 : 5), y: box.top + 10, "text-anchor": late ? "end" : "start" }, name);
    }
  }

  drawDiagonal(view, box, x, y, inside) {
    const low = Math.max(x.start, y.start), high = Math.min(x.end, y.end);
    if (low >= high) return; // outside the visible range
    shape(inside, "line", { class: "upright", x1: x.at(low), y1: y.at(low), x2: x.at(high), y2: y.at(high) });
    const [px, py] = [(x.at(low) + x.at(high)) / 2 - 12, (y.at(low) + y.at(high)) / 2 - 4];
    const room = px - box.left > view.diagonal.length * 6.5;
    shape(inside, "text", { class: "halo", x: room ? px : box.left + 8, y: room ? py : box.top + 10, "text-anchor": room ? "end" : "start" }, view.diagonal);
  }

  drawSeries(series, x, y, log, inside) {
    const group = shape(inside, "g", { class: styleOf(series) });
    group.style.setProperty("--colour", colourOf(series));
    const place = ([a, b]) => `${x.at(a).toFixed(1)} ${y.at(log ? Math.max(b, y.start) : b).toFixed(1)}`;
    if (series.low && series.spread === "band") {
      const upper = series.points.map(([a], k) => [a, series.high[k]]);
      const lower = series.points.map(([a], k) => [a, series.low[k]]).reverse();
      this.bands.set(series, shape(group, "path", { class: "band", d: `M${[...upper, ...lower].map(place).join("L")}Z` }));
    } else if (series.low) {
      const d = series.points.map(([a], k) => {
        if (series.low[k] === series.high[k]) return "";
        // If the lower end has no logarithm, only the upper half of a bar can be drawn.
        const low = log && !(series.low[k] > 0) ? series.points[k][1] : series.low[k];
        const at = x.at(a), [from, to] = [y.at(low), y.at(series.high[k])];
        const foot = low === series.low[k] ? `M${at - 3} ${from}h6` : "";
        return `M${at} ${from}V${to}M${at - 3} ${to}h6${foot}`;
      });
      shape(group, "path", { class: "whisker", d: d.join("") });
    }
    const once = series.points.map((_, k) => isOnce(series, k));
    if (series.line && new Set(once).size > 1) {
      // A mean and a single run are not directly comparable, so the line between them is dotted.
      for (const mixed of [false, true]) {
        const pieces = series.points.slice(1).map((point, k) => ((once[k] !== once[k + 1]) === mixed ? `M${place(series.points[k])}L${place(point)}` : ""));
        shape(group, "path", { class: mixed ? "line mixed" : "line", d: pieces.join("") });
      }
    } else if (series.line && series.points.length) {
      shape(group, "path", { class: "line", d: `M${series.points.map(place).join("L")}` });
    }
    series.each?.forEach((values, k) => {
      for (const value of values) shape(group, "circle", { class: "one", cx: x.at(series.points[k][0]), cy: y.at(value), r: 2.5 });
    });
    if (!series.marks) return;
    if (this.now.diagonal) {
      shape(group, "path", { class: "dots", d: series.points.map((point) => `M${place(point)}h0`).join("") });
    } else {
      series.points.forEach(([a, b], k) => addMark(group, series, x.at(a), y.at(b), once[k]));
    }
  }

  // Labels that would overlap are left out.
  drawLabels(x, y, inside) {
    const marked = this.shown.filter((series) => series.marks), drawn = [];
    const spots = marked.flatMap((series) => series.points.map(([a, b]) => [x.at(a), y.at(b)]));
    for (const { labels, points } of marked) {
      labels?.forEach((label, k) => {
        const [across, down] = [x.at(points[k][0]), y.at(points[k][1])];
        if (!label || drawn.some(([a, b]) => Math.abs(a - across) < 60 && Math.abs(b - down) < 16)) return;
        if (this.drawLabel(inside, across, down, label, spots)) drawn.push([across, down]);
      });
    }
  }

  // Beside its point; on a phone, where others may be near, below or above it, one line per part, or not at all.
  drawLabel(inside, across, down, label, spots) {
    if (this.width >= 520) {
      const late = across + 14 + 6.8 * label.length > this.width;
      shape(inside, "text", { class: "halo", x: across + (late ? -9 : 9), y: down - 5, "text-anchor": late ? "end" : "start" }, label);
      return true;
    }
    const lines = label.split(", "), half = 3.5 * Math.max(...lines.map((line) => line.length));
    const x = Math.min(Math.max(across, this.box.left + half), this.box.right + 4 - half);
    const covers = (first) => spots.some(([a, b]) => Math.abs(a - x) < half + 5 && b > first - 15 && b < first + 14 * lines.length - 7);
    const first = [down + 18, down + 4 - 14 * lines.length].find((top) => top + 14 * (lines.length - 1) < this.box.bottom && !covers(top));
    lines.forEach((line, k) => first !== undefined && shape(inside, "text", { class: "halo", x, y: first + 14 * k, "text-anchor": "middle" }, line));
    return first !== undefined;
  }

  // Stops of the cursor: each point of a cloud, or otherwise each x that has a marked point, with all lines there.
  findStops(x, y) {
    const stops = [];
    if (this.now.diagonal) {
      for (const series of this.shown) {
        series.points.forEach(([a, b], k) => stops.push({ at: x.at(a), down: y.at(b), value: a, rows: [[series, b, null, k]] }));
      }
    } else {
      const marked = this.shown.filter((series) => series.marks);
      const values = new Set((marked.length ? marked : this.shown).flatMap((series) => series.points.map(([a]) => a)));
      for (const value of values) {
        const rows = [];
        for (const series of this.shown) {
          const k = series.points.findIndex(([a]) => a === value);
          if (k >= 0) rows.push([series, series.points[k][1], series.low ? [series.low[k], series.high[k]] : null, k]);
          else if (!series.marks && between(series.points, value) !== null) rows.push([series, between(series.points, value), null, -1]);
        }
        stops.push({ at: x.at(value), down: null, value, rows, rings: rows.map(([, b]) => [x.at(value), y.at(b)]) });
      }
    }
    return stops.sort((a, b) => a.value - b.value);
  }

  listen() {
    const move = (event) => {
      const area = this.plot.getBoundingClientRect();
      const [px, py] = [event.clientX - area.left, event.clientY - area.top];
      let best = -1, least = Infinity;
      this.stops.forEach((stop, place) => {
        const far = stop.down === null ? Math.abs(stop.at - px) : Math.hypot(stop.at - px, stop.down - py);
        if (far < least) { least = far; best = place; }
      });
      if (this.stops[best]?.down !== null && least > 40) best = -1;
      if (best !== this.cursor) { this.cursor = best; this.showCursor(false); }
      const away = (k) => Math.abs(this.stops[best].rings[k][1] - py);
      const rows = this.stops[best]?.rings ? this.stops[best].rows : [];
      const near = rows.map((_, k) => k).sort((a, b) => away(a) - away(b))[0];
      this.showBand(near === undefined ? null : rows[near][0]);
    };
    const leave = () => { this.cursor = -1; this.showCursor(false); this.showBand(null); };
    this.plot.addEventListener("pointermove", move);
    this.plot.addEventListener("pointerdown", move);
    // Lifting a finger also counts as leaving, but its tip stays until the next tap elsewhere.
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
    document.addEventListener("pointerdown", (event) => { if (!this.plot.contains(event.target)) leave(); });
    this.plot.addEventListener("blur", leave);
    this.plot.addEventListener("keydown", (event) => {
      const last = this.stops.length - 1;
      const to = { ArrowRight: Math.min(this.cursor + 1, last), ArrowLeft: Math.max(this.cursor - 1, 0), Home: 0, End: last, Escape: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.cursor = to;
      this.showCursor(true);
    });
  }

  showCursor(aloud) {
    this.pointer.replaceChildren();
    const stop = this.stops[this.cursor];
    this.tip.hidden = !stop;
    if (!stop) return;
    const view = this.now, { box } = this;
    if (stop.down === null) {
      shape(this.pointer, "line", { class: "cursor", x1: stop.at, x2: stop.at, y1: box.top, y2: box.bottom });
      for (const [across, down] of stop.rings) {
        if (down <= box.bottom + 1) shape(this.pointer, "circle", { class: "ring", cx: across, cy: down, r: 5.5 });
      }
    } else {
      shape(this.pointer, "circle", { class: "ring", cx: stop.at, cy: stop.down, r: 6 });
    }
    const lines = this.fillTip(view, stop);
    if (aloud) this.said.textContent = lines.join("; ");
    this.placeTip(stop);
  }

  // Beside its points, never over them. A tip that would hide half of the curves goes below.
  placeTip({ at, down }) {
    const { box, tip, width } = this, wide = tip.offsetWidth, high = tip.offsetHeight;
    const below = width < 520 || (down === null && wide > 0.45 * (box.right - box.left));
    const left = below || down !== null ? at - wide / 2 : at + 14 + wide < width ? at + 14 : at - 14 - wide;
    const above = down === null ? box.top + 6 : down - high - 12 >= 0 ? down - high - 12 : down + 14;
    tip.style.left = `${Math.max(0, Math.min(left, width - wide))}px`;
    tip.style.top = `${below ? box.bottom + 46 : above}px`;
  }

  fillTip(view, stop) {
    const head = `${view.x}: ${say(stop.value)}`, lines = [head];
    this.tip.replaceChildren();
    make(this.tip, "strong", {}, head);
    const table = make(this.tip, "table");
    const write = (number) => (view.zero && number > 0 ? "+" : "") + say(number, view.percent);
    for (const [series, value, bar, k] of stop.rows) {
      const ends = bar && bar[0] < bar[1] ? bar : null; // a single run has no spread
      const note = series.notes?.[k] ? ` (${series.notes[k]})` : "";
      const row = make(table, "tr"), name = make(row, "td");
      addSwatch(name, series);
      typeset(name, (stop.down === null ? series.name : `${series.name}: ${view.y}`) + note);
      const spread = ends ? ` (${write(ends[0])} to ${write(ends[1])})` : "";
      const cell = make(row, "td", {}, write(value));
      if (ends) make(cell, "small", {}, spread.trim().slice(1, -1));
      lines.push(`${series.name}${note} ${write(value)}${spread}`);
    }
    return lines;
  }
}

function styleOf(series) {
  return series.thin ? `${series.dash} thin` : series.dash;
}

// A small sample of a series: colour alone would not distinguish two lines of the same colour.
function addSwatch(parent, series) {
  const svg = shape(parent, "svg", { class: "swatch", width: 26, height: 12, "aria-hidden": "true" });
  const group = shape(svg, "g", { class: styleOf(series) });
  group.style.setProperty("--colour", colourOf(series));
  if (series.line) shape(group, "path", { class: "line", d: "M1 6H25" });
  if (series.marks) addMark(group, series, 13, 6, series.points.length > 0 && series.points.every((_, k) => isOnce(series, k)));
}

// Whether a point is a single run among means of several.
function isOnce(series, k) {
  return series.each !== null && !series.each[k]?.length;
}

// Circles on solid lines, squares on dashed ones, triangles on dotted ones; single runs are hollow.
function addMark(group, series, x, y, once) {
  const look = { class: once ? "mark-dot once" : "mark-dot" };
  if (series.dash === "solid") shape(group, "circle", { ...look, cx: x, cy: y, r: 4 });
  else if (series.dash === "dashed") shape(group, "rect", { ...look, x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  else shape(group, "path", { ...look, d: `M${x - 4.5} ${y - 3.5}h9L${x} ${y + 4.5}Z` });
}
