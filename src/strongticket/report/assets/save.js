// Saves a figure: as SVG, as it looks now, or as CSV, with its numbers. Both are made here; nothing is fetched.

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "visibility",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order"];
const LEFT_OUT = ".controls, .tip, .take, .quiet, details, script, noscript, [hidden]";

function addSaving(figure, drawing) {
  const name = figure.closest("section")?.id ?? "figure", box = make(figure, "p", { class: "take" });
  const title = figure.querySelector(".figure-title").textContent;
  for (const [kind, write, type] of [["SVG", () => asSvg(figure), "image/svg+xml"], ["CSV", () => asCsv(figure, drawing), "text/csv"]]) {
    const button = make(box, "button", { type: "button", "aria-label": `Save as ${kind}: ${title}` }, kind);
    button.addEventListener("click", () => {
      const address = URL.createObjectURL(new Blob([write()], { type }));
      make(box, "a", { href: address, download: `${name}.${kind.toLowerCase()}`, hidden: "" }).click();
      box.querySelector("a").remove();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    });
  }
}

// Every drawing, picture and line of text, at its place on the page.
function asSvg(figure) {
  const frame = figure.getBoundingClientRect();
  const svg = document.createElementNS(SVG, "svg");
  const size = { width: Math.ceil(frame.width), height: Math.ceil(frame.height) };
  for (const [name, value] of Object.entries({ xmlns: SVG, ...size })) svg.setAttribute(name, value);
  shape(svg, "rect", { ...size, fill: getComputedStyle(figure).backgroundColor });
  const place = (box) => ({ x: (box.left - frame.left).toFixed(1), y: (box.top - frame.top).toFixed(1) });
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return addLines(svg, node, place);
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(LEFT_OUT) || !node.checkVisibility()) return;
    const box = node.getBoundingClientRect(), at = { ...place(box), width: box.width, height: box.height };
    if (node.tagName === "CANVAS") shape(svg, "image", { ...at, href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" });
    else if (node.tagName.toLowerCase() === "svg") svg.append(withStyles(node, at));
    else if (node.tagName === "I") shape(svg, "rect", { ...at, fill: getComputedStyle(node).backgroundColor });
    else {
      if (node.closest(".colour-bar") && node.tagName === "BUTTON") shape(svg, "rect", { ...at, fill: getComputedStyle(node, "::before").backgroundColor });
      node.childNodes.forEach(walk);
    }
  };
  figure.childNodes.forEach(walk);
  return new XMLSerializer().serializeToString(svg);
}

function withStyles(svg, at) {
  const copy = svg.cloneNode(true), own = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
    const style = getComputedStyle(own[k]);
    for (const name of KEPT) element.style.setProperty(name, style.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries({ ...at, overflow: "visible" })) copy.setAttribute(name, value);
  return copy;
}

function addLines(svg, node, place) {
  const style = getComputedStyle(node.parentElement), range = document.createRange(), lines = [];
  for (const word of node.textContent.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const box = range.getBoundingClientRect(), last = lines.at(-1);
    if (last && Math.abs(last.box.top - box.top) < 3) last.text += ` ${word[0]}`;
    else if (box.width) lines.push({ box, text: word[0] });
  }
  for (const { box, text } of lines) {
    const at = place(box), look = { "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight, fill: style.color };
    shape(svg, "text", { ...at, y: Number(at.y) + 0.78 * box.height, ...look }, text);
  }
}

function asCsv(figure, drawing) {
  const quote = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const write = (rows) => rows.map((row) => row.map((cell) => quote(String(cell ?? ""))).join(",") + "\n").join("");
  if (drawing instanceof Chart) {
    const { now } = drawing, head = ["line", now.x, now.y, "low", "high", "note"];
    const rows = now.series.flatMap((series) => series.points.map(([x, y], k) => [series.name, x, y, series.low?.[k], series.high?.[k], series.notes?.[k]]));
    return write([head, ...rows]);
  }
  const text = (row) => [...row.querySelectorAll("th, td:not(.picture)")].filter((cell) => !cell.matches(".picture")).map((cell) => cell.textContent);
  return [...figure.querySelectorAll("table")].map((table) => write([...table.querySelectorAll("thead tr, tbody tr")].map(text))).join("\n");
}
