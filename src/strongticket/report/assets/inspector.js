// A ticket's tensors: a list to pick from, the mask as a picture, the weights drawn and kept.

let inspectors = 0;

class Inspector {
  constructor(root, spec, label) {
    this.tensors = spec.tensors;
    inspectors += 1;
    const grid = make(root, "div", { class: "inspector" });
    this.addList(grid, label, `tensor-${inspectors}`);
    this.pane = make(grid, "div", { class: "pane", "aria-live": "polite" });
    const first = this.tensors.findIndex((tensor) => tensor.grid && tensor.kind === "bits");
    this.pick(first < 0 ? 0 : first);
    document.addEventListener("themechange", () => this.paint());
  }

  addList(grid, label, group) {
    const list = make(grid, "fieldset", { class: "tensors" });
    make(list, "legend", { class: "quiet" }, `Tensors of ${label}`);
    this.choices = this.tensors.map((tensor, place) => {
      const row = make(list, "label");
      const choice = make(row, "input", { type: "radio", name: group, value: place });
      addName(make(row, "b"), tensor.name);
      const bar = shape(row, "svg", { width: 60, height: 8, "aria-hidden": "true" });
      shape(bar, "rect", { class: "meter-back", width: 60, height: 8, rx: 2 });
      shape(bar, "rect", { class: "meter-fill", width: (60 * tensor.density).toFixed(1), height: 8, rx: 2 });
      make(row, "small", {}, tensor.shape);
      make(row, "em", {}, tensor.density.toFixed(3));
      choice.addEventListener("change", () => this.pick(place));
      return choice;
    });
  }

  pick(place) {
    this.tensor = this.tensors[place];
    if (!this.tensor) return;
    this.choices[place].checked = true;
    const { pane, tensor } = this;
    pane.replaceChildren();
    this.canvas = null;
    addName(make(pane, "h3"), `Mask of ${tensor.name}, ${tensor.shape}`);
    if (!tensor.grid) {
      make(pane, "p", {}, `No picture: ${tensor.note}.`);
      return;
    }
    // A tall mask is turned on its side, so that all of it is visible.
    this.turned = tensor.grid.rows > 1.5 * tensor.grid.columns;
    const [rows, columns] = this.turned ? [tensor.grid.columns, tensor.grid.rows] : [tensor.grid.rows, tensor.grid.columns];
    this.canvas = make(pane, "canvas", {
      width: columns, height: rows, role: "img", "aria-label": `Mask of ${tensor.name}: density ${tensor.density.toFixed(4)}`,
    });
    // Cells are square unless the picture would become too thin.
    this.canvas.style.maxWidth = `${columns > 1.5 * rows ? 560 : 400}px`;
    this.canvas.style.aspectRatio = String(Math.min(columns / rows, 14));
    this.cells = Uint8Array.from(atob(tensor.grid.cells), (sign) => sign.charCodeAt(0));
    this.addShades(pane);
    const notes = [tensor.note, this.turned ? "turned: rows run across" : ""].filter(Boolean);
    if (notes.length) make(pane, "p", {}, `${notes.join("; ")}.`);
    this.paint();
    this.drawDistribution(pane, tensor.histogram);
  }

  // Means of many weights are all near the density, so they get the full range of shades, and a key.
  addShades(pane) {
    const sorted = [...this.cells].sort((a, b) => a - b), at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    const mixed = this.cells.some((value) => value > 0 && value < 255);
    this.shades = mixed && at(0.01) < at(0.99) ? [at(0.01), at(0.99)] : [0, 255];
    if (!mixed) return;
    const key = make(pane, "div", { class: "shades", "aria-hidden": "true" });
    const [low, high] = this.shades.map((value) => (value / 255).toFixed(2));
    make(key, "span", {}, `density ${low}`);
    make(key, "i");
    make(key, "span", {}, high);
  }

  paint() {
    if (!this.canvas) return;
    const { columns } = this.tensor.grid, [low, high] = this.shades;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.fillStyle = getComputedStyle(this.canvas).getPropertyValue("--mean").trim();
    this.cells.forEach((value, place) => {
      context.globalAlpha = Math.min(1, Math.max(0, (value - low) / (high - low)));
      const [row, column] = [Math.floor(place / columns), place % columns];
      context.fillRect(this.turned ? row : column, this.turned ? column : row, 1, 1);
    });
  }

  drawDistribution(pane, { reach, all, kept, of, numel }) {
    make(pane, "h3", {}, "Weights kept (blue) among all drawn");
    const [width, height, top] = [560, 170, Math.max(...all, 1)];
    const svg = shape(pane, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    const sum = kept.reduce((a, b) => a + b, 0);
    shape(svg, "title", {}, `Of ${of.toLocaleString("en-US")} weights between ${say(-reach)} and ${say(reach)}, ${sum.toLocaleString("en-US")} are kept`);
    const step = width / all.length;
    all.forEach((count, place) => {
      const [x, tall, low] = [place * step + 0.5, (count / top) * height, (kept[place] / top) * height];
      shape(svg, "rect", { class: "drawn-bar", x, y: height - tall, width: step - 1, height: tall });
      shape(svg, "rect", { class: "kept-bar", x, y: height - low, width: step - 1, height: low });
    });
    shape(svg, "line", { class: "base", x1: 0, x2: width, y1: height, y2: height });
    const ends = make(pane, "div", { class: "ends", "aria-hidden": "true" });
    for (const value of [-reach, 0, reach]) make(ends, "span", {}, say(value));
    const part = of < numel ? `, a sample of ${numel.toLocaleString("en-US")}` : "";
    make(pane, "p", {}, `${sum.toLocaleString("en-US")} of ${of.toLocaleString("en-US")} weights kept${part}.`);
  }
}
