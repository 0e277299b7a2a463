// A matrix as a picture: the larger an entry, the bluer its cell; a pointer reads single entries.

class Matrix {
  constructor(root, { values }, label) {
    this.values = values;
    const flat = values.flat(), [rows, columns] = [values.length, values[0].length];
    [this.low, this.high] = [Math.min(...flat), Math.max(...flat)];
    const box = make(root, "div", { class: "matrix" });
    this.canvas = make(box, "canvas", {
      width: columns, height: rows, role: "img", "aria-label": `${label}: ${rows} by ${columns} entries from ${say(this.low)} to ${say(this.high)}`,
    });
    this.canvas.style.aspectRatio = String(columns / rows);
    this.canvas.style.maxWidth = `${Math.round(Math.min(720, (440 * columns) / rows))}px`;
    this.key = make(box, "div", { class: "shades", "aria-hidden": "true" });
    make(this.key, "span", {}, say(this.low));
    make(this.key, "i");
    make(this.key, "span", {}, say(this.high));
    this.read = make(this.key, "output");
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.read.textContent = ""; });
    document.addEventListener("themechange", () => this.paint());
    this.paint();
  }

  paint() {
    const context = this.canvas.getContext("2d"), range = this.high - this.low || 1;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.fillStyle = getComputedStyle(this.canvas).getPropertyValue("--mean").trim();
    this.values.forEach((row, i) => row.forEach((value, j) => {
      context.globalAlpha = (value - this.low) / range;
      context.fillRect(j, i, 1, 1);
    }));
  }

  point(event) {
    const area = this.canvas.getBoundingClientRect();
    const place = (at, size, cells) => Math.min(cells - 1, Math.max(0, Math.floor((at / size) * cells)));
    const i = place(event.clientY - area.top, area.height, this.values.length);
    const j = place(event.clientX - area.left, area.width, this.values[0].length);
    this.read.textContent = `row ${i + 1}, column ${j + 1}: ${say(this.values[i][j])}`;
  }
}
