// Draws SPECS into #chart-0, #chart-1, … and again when the width or the color scheme changes.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const AXIS = 66, GAP = 36, PADDING = 8, BESIDE = 860; // [px]
const drawn = new Map();

function fitted(spec, width) {
  const panels = spec.hconcat, beside = panels.length > 1 && width >= BESIDE;
  const columns = beside ? panels.length : 1;
  const inner = Math.floor((width - 2 * PADDING - GAP * (columns - 1)) / columns) - AXIS;
  const sized = panels.map((panel) => ({
    ...panel, width: Math.max(160, Math.min(inner, 720)), height: beside ? 320 : 260,
  }));
  const { hconcat, title, ...rest } = spec; // the page has its own heading
  const all = { ...rest, padding: PADDING, config: dark.matches ? DARK_CONFIG : spec.config };
  return beside ? { ...all, hconcat: sized } : { ...all, vconcat: sized };
}

async function draw(index) {
  const place = document.getElementById(`chart-${index}`), width = place.clientWidth;
  const look = `${width}/${dark.matches}`;
  const before = drawn.get(index);
  if (before?.look === look) return;
  drawn.set(index, { look });
  const result = await vegaEmbed(place, fitted(SPECS[index], width), {
    renderer: "svg", theme: undefined, tooltip: { theme: dark.matches ? "dark" : "light" },
    actions: { export: true, source: false, compiled: false, editor: false },
  });
  before?.result?.finalize();
  if (drawn.get(index)?.look === look) drawn.set(index, { look, result });
  place.dataset.drawn = look;
}

function drawAll() { SPECS.forEach((_, index) => draw(index)); }
dark.addEventListener("change", drawAll);
let pending = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(drawAll);
});
drawAll();
