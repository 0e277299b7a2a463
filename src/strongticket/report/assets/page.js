// Draws every figure of the page from its data, and switches colours.

const KINDS = { Chart, Maps, Inspector, Matrix };

for (const figure of document.querySelectorAll("figure.drawn")) {
  const spec = JSON.parse(document.getElementById(figure.dataset.from).textContent);
  const root = figure.querySelector(".drawing");
  root.replaceChildren();
  try {
    addSaving(figure, new KINDS[figure.dataset.kind](root, spec, figure.querySelector(".figure-title").textContent));
  } catch (error) {
    // A broken figure must not hide the others.
    root.replaceChildren();
    make(root, "p", {}, `This figure could not be drawn (${error.message}); its numbers are in the table.`);
  }
}

// A long table with a picture in it shows its first lines, and all of them on request.
const SHORT = 10;
for (const figure of document.querySelectorAll("figure.comparison")) {
  addSaving(figure, null);
  const rest = [...figure.querySelectorAll("tbody tr")].slice(SHORT);
  if (rest.length < 4) continue;
  const button = make(figure, "button", { type: "button", class: "unfold", "aria-expanded": "false" }, `Show ${rest.length} more lines`);
  figure.querySelector(".scroll").after(button);
  rest.forEach((row) => { row.hidden = true; });
  button.addEventListener("click", () => {
    rest.forEach((row) => { row.hidden = !row.hidden; });
    button.setAttribute("aria-expanded", String(!rest[0].hidden));
    button.textContent = rest[0].hidden ? `Show ${rest.length} more lines` : "Show fewer lines";
  });
}

// Marks the sides on which a table can be scrolled further.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => {
    const left = box.scrollLeft > 1, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 1;
    const more = [left && "left", right && "right"].filter(Boolean).join(" ");
    if (more) box.dataset.more = more; else delete box.dataset.more;
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box); // also when its container is opened
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

// The list of contents marks the current section: the last whose top has passed the upper third of the window.
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const places = [...document.querySelectorAll("main section")].filter((section) => section.id);
let current = null;

function markSection() {
  const passed = places.filter((section) => section.getBoundingClientRect().top < innerHeight / 3);
  const atEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  const here = atEnd ? places.at(-1) : passed.at(-1);
  const link = here && links.get(here.dataset.under ?? here.id);
  if (link === current) return;
  current?.removeAttribute("aria-current");
  current = link;
  if (!link) return;
  link.setAttribute("aria-current", "true");
  // If the list is a scrolling row, the mark stays visible.
  const list = link.closest("ol");
  list.scrollTo({ left: link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2 });
}

let asked = false;
addEventListener("scroll", () => {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; markSection(); });
}, { passive: true });
addEventListener("resize", markSection);
markSection();
