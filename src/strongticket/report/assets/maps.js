// Attention maps of target, ticket and their difference, with a slider over the widths.

class Maps {
  constructor(root, spec, label) {
    this.spec = spec;
    this.sample = 0;
    this.width = 0; // the narrowest, where there is a difference to see
    const controls = make(root, "div", { class: "controls" });
    this.addSlider(controls, label);
    this.addSamples(controls);
    const trio = make(root, "div", { class: "trio" });
    this.panes = ["Target", "Ticket", "Difference × 1000"].map((name) => {
      const pane = make(trio, "div");
      make(pane, "h3", {}, name);
      return { name, pane };
    });
    this.said = make(trio, "p", { class: "said", "aria-live": "polite" });
    this.largest = Math.max(...spec.sources.map((source) => this.gap(source))) || 1;
    const weights = [spec.target, ...spec.sources].flat(3); // one scale for all widths and inputs
    this.low = Math.min(...weights);
    this.range = Math.max(...weights) - this.low || 1;
    this.draw();
  }

  addSlider(controls, label) {
    const { widths } = this.spec;
    const field = make(controls, "label", { class: "field" });
    field.append("Width");
    this.slider = make(field, "input", { type: "range", min: 0, max: widths.length - 1, step: 1, value: this.width, "aria-label": `Width, ${label}` });
    this.output = make(field, "output");
    this.slider.addEventListener("input", () => { this.width = Number(this.slider.value); this.draw(); });
  }

  addSamples(controls) {
    if (this.spec.target.length < 2) return;
    const names = this.spec.target.map((_, place) => `Input ${place + 1}`);
    switcher(controls, "Input", names, 0, (place) => { this.sample = place; this.draw(); });
  }

  // The largest difference of a source from the target, over all inputs.
  gap(source) {
    return Math.max(...source.flatMap((map, k) => map.flatMap((row, i) => row.map((value, j) => Math.abs(value - this.spec.target[k][i][j])))));
  }

  draw() {
    const n = this.spec.widths[this.width];
    const target = this.spec.target[this.sample], source = this.spec.sources[this.width][this.sample];
    const gaps = source.map((row, i) => row.map((value, j) => value - target[i][j]));
    this.output.textContent = `n = ${n}`;
    this.slider.setAttribute("aria-valuetext", `width ${n}`);
    const shade = (value) => ["weight", 0.08 + 0.92 * (value - this.low) / this.range]; // the lowest is still a cell
    this.drawMap(this.panes[0], target, shade);
    this.drawMap(this.panes[1], source, shade);
    this.drawMap(this.panes[2], gaps, (value) => [value > 0 ? "more" : "less", Math.abs(value) / this.largest], true);
    const gap = Math.max(...gaps.flat().map(Math.abs));
    this.said.textContent = `At width ${n} the largest difference of an attention weight is ${gap < 1.5e-6 ? "10⁻⁶ or less, the last digit stored" : say(gap)}.`;
  }

  drawMap({ name, pane }, map, paint, signed = false) {
    pane.querySelector("svg")?.remove();
    const side = map.length, cell = 100 / side;
    const svg = shape(pane, "svg", { viewBox: "0 0 100 100", role: "img" });
    shape(svg, "title", {}, `${name}: ${side} by ${side} attention weights`);
    map.forEach((row, i) => row.forEach((value, j) => {
      const [kind, strength] = paint(value);
      const box = { x: j * cell, y: i * cell, width: cell, height: cell };
      shape(svg, "rect", { class: `cell ${kind}`, ...box, "fill-opacity": Math.min(1, strength).toFixed(3) });
      if (side > 8) return;
      const text = signed ? String(Math.round(1000 * value) || 0).replace("-", "−") : value.toFixed(2).replace("0.", ".");
      shape(svg, "text", { class: strength > (kind === "more" ? 0.8 : 0.63) ? "light" : "", x: (j + 0.5) * cell, y: (i + 0.5) * cell, "font-size": (cell * (signed ? 0.36 : 0.42)).toFixed(1) }, text);
    }));
  }
}
