// Draws every figure of the page from the data beside it, and switches colours.

const KINDS = { chart: Chart, maps: Maps, inspector: Inspector };

for (const figure of document.querySelectorAll("figure.drawn")) {
  const spec = JSON.parse(document.getElementById(figure.dataset.from).textContent);
  const root = figure.querySelector(".drawing");
  root.replaceChildren();
  new KINDS[spec.kind](root, spec, figure.querySelector(".figure-title").textContent);
}

const tellTheme = () => document.dispatchEvent(new Event("themechange"));
const themes = [...document.querySelectorAll("[data-theme]")].filter((element) => element.tagName === "BUTTON");
for (const button of themes) {
  button.addEventListener("click", () => {
    themes.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    document.documentElement.dataset.theme = button.dataset.theme;
    tellTheme();
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellTheme);
