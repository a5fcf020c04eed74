"use strict";
(() => {
  // Charts and details of cells: gzip in base64, unpacked once.
  const unpack = async () => {
    const packed = atob(document.getElementById("data").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const loaded = unpack();

  // A small way to build elements; text is always text, never HTML.
  const make = (tag, attributes = {}, ...children) => {
    const svg = ["svg", "line", "path", "circle", "text", "title", "g"].includes(tag);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    for (const child of children) node.append(child);
    return node;
  };

  // Charts ------------------------------------------------------------------
  const color = (name) => (typeof name === "number" ? `var(--c${name % 8})`
    : ["standard", "ffcl"].includes(name) ? `var(--${name})` : "var(--other)");

  const ticks = (low, high, whole) => {
    const span = high - low || 1;
    let step = 10 ** Math.floor(Math.log10(span / 4));
    for (const factor of [1, 2, 5, 10]) if (span / (step * factor) <= 5) { step *= factor; break; }
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-6; x += step) found.push(Number(x.toPrecision(10)));
    return found;
  };

  const drawChart = (figure, chart) => {
    const width = 380, height = 230, left = 52, right = 10, top = 10, bottom = 34;
    const points = chart.series.flatMap((series) => series.points);
    const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
    if (!points.length) return;
    const least = Math.min(...ys), most = Math.max(...ys);
    const ylog = chart.kind === "loss" && least > 0 && most > 30 * least;
    const lift = ylog ? Math.log10 : (y) => y;
    let low = chart.floor ?? lift(least), high = lift(most);
    const margin = (high - low) * 0.08 || 1;
    if (chart.floor == null) low -= margin;
    high += margin;
    if (!ylog && low < 0 && least >= 0) low = 0;
    const bend = chart.log ? Math.log : (x) => x;
    const first = bend(Math.min(...xs)), last = bend(Math.max(...xs));
    const px = (x) => left + (last > first ? (bend(x) - first) / (last - first) : 0.5) * (width - left - right);
    const py = (y) => top + (1 - (Math.max(lift(y), low) - low) / (high - low)) * (height - top - bottom);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
    const decades = [];
    if (ylog) for (let power = Math.ceil(low); power <= high; power++) decades.push(Number((10 ** power).toPrecision(3)));
    for (const y of ylog ? decades : ticks(low, high)) {
      svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: py(y), y2: py(y) }));
      svg.append(make("text", { x: left - 5, y: py(y) + 4, "text-anchor": "end" }, String(y)));
    }
    const marks = chart.kind === "sweep" ? [...new Set(xs)].sort((a, b) => a - b) : ticks(Math.min(...xs), Math.max(...xs), true);
    let lastLabel = -99;
    for (const x of marks) {
      if (px(x) - lastLabel < 26) continue;
      lastLabel = px(x);
      svg.append(make("text", { x: px(x), y: height - bottom + 15, "text-anchor": "middle" }, String(x)));
    }
    for (const x of chart.marks || []) svg.append(make("line", { class: "axis", x1: px(x + 0.5), x2: px(x + 0.5), y1: top, y2: height - bottom }));
    svg.append(make("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, chart.x));
    svg.append(make("text", { x: -(top + height - bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, chart.y));
    const names = make("div", { class: "names" });
    for (const series of chart.series) {
      if (!series.points.length) continue;
      const ink = color(series.color);
      const line = series.points.map((point, i) => `${i ? "L" : "M"}${px(point[0]).toFixed(1)} ${py(point[1]).toFixed(1)}`).join("");
      svg.append(make("path", { d: line, fill: "none", style: `stroke:${ink}`, "stroke-width": series.paper ? 1.5 : 2, "stroke-dasharray": series.paper ? "5 4" : "none", "stroke-linejoin": "round" }));
      if (chart.kind !== "loss") for (const [x, y, spread] of series.points) {
        if (spread) svg.append(make("line", { style: `stroke:${ink}`, x1: px(x), x2: px(x), y1: py(y - spread), y2: py(y + spread) }));
        const dot = make("circle", { cx: px(x), cy: py(y), r: 3.2, style: `stroke:${ink};fill:${series.paper ? "var(--paper)" : ink}`, "stroke-width": 1.5 });
        dot.append(make("title", {}, `${series.name}: ${y.toFixed(2)} at ${x}`));
        svg.append(dot);
        if (chart.floor != null && y < low && !series.paper) svg.append(make("text", { class: "cut", x: px(x) + 9, y: py(y) + 2 - (series.color === "ffcl" ? 13 : 0), style: `fill:${ink}` }, `▾ ${y.toFixed(0)}`));
      }
      names.append(make("span", {}, make("i", { class: series.paper ? "paper" : "", style: `border-color:${ink}` }), series.name));
    }
    figure.append(make("figcaption", {}, chart.title), svg, names);
  };
  // A chart is drawn when it can be seen: those of closed sections can wait.
  const drawOpen = async () => {
    const { charts } = await loaded;
    for (const figure of document.querySelectorAll(".chart[data-chart]:empty")) {
      if (!figure.closest("details:not([open])")) drawChart(figure, charts[Number(figure.dataset.chart)]);
    }
  };
  document.addEventListener("toggle", drawOpen, true);
  drawOpen();

  // The table of all cells: sort and filter -----------------------------------
  const table = document.getElementById("all");
  const body = table.tBodies[0], heads = table.tHead.rows[0].cells;
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    if (!heads[column].classList.contains("number")) return text.toLowerCase();
    const value = Number.parseFloat(text.replace(/^\(/, "")); // of "88.41 ± 0.20" the mean
    return Number.isNaN(value) ? null : value;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  let touched = false;
  [...heads].forEach((head, column) => head.querySelector(".sort").addEventListener("click", () => {
    touched = true;
    const numbers = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    const descending = before === "none" ? numbers : before === "ascending";
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // unknown last
      return descending ? compare(b, a) : compare(a, b);
    });
    body.append(...rows.map(([, row]) => row));
  }));
  const filter = document.getElementById("filter"), count = document.getElementById("count");
  const texts = new Map([...body.rows].map((row) => [row, row.textContent.replace(/\s+/g, " ").toLowerCase()]));
  const applyFilter = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of texts) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${texts.size}`;
  };
  filter.addEventListener("input", applyFilter);
  applyFilter();

  // One cell ----------------------------------------------------------------
  const dialog = document.getElementById("cell");
  const confusion = (counts, names) => {
    const head = make("tr", {}, make("th", {}, "true \\ predicted"));
    counts.forEach((_, i) => head.append(make("th", { scope: "col" }, names?.[i] ?? String(i))));
    const rows = make("tbody");
    counts.forEach((row, i) => {
      const total = row.reduce((a, b) => a + b, 0) || 1;
      const line = make("tr", {}, make("th", { scope: "row" }, names?.[i] ?? String(i)));
      row.forEach((value, j) => {
        const share = value / total;
        const tint = i === j ? "37,99,235" : "217,72,15";
        const style = value ? `background:rgba(${tint},${(0.08 + 0.87 * Math.sqrt(share)).toFixed(2)});color:${share > 0.3 ? "#fff" : "inherit"}` : "";
        line.append(make("td", { style, title: `${(100 * share).toFixed(1)} %` }, value ? String(value) : "·"));
      });
      rows.append(line);
    });
    return make("div", { class: "scroll" }, make("table", { class: "confusion" }, make("caption", {}, "Confusion matrix: rows are true labels; blue is right, orange is wrong"), make("thead", {}, head), rows));
  };
  const facts = (pairs) => {
    const list = make("dl", { class: "facts" });
    for (const [name, value] of Object.entries(pairs)) list.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
    return list;
  };
  // Every step-th epoch from the first, and the last.
  const lossPoints = (layer) => layer.values.map((value, i) => [Math.min(1 + i * layer.step, layer.epochs), value, null]).filter((point) => point[1] !== null);
  const showRun = (place, cell, run) => {
    place.replaceChildren();
    const charts = make("div", { class: "charts" });
    const layers = make("figure", { class: "chart" }), losses = make("figure", { class: "chart" });
    charts.append(layers, losses);
    const known = run.layers.map((value, i) => [i + 1, value, null]).filter((point) => point[1] !== null);
    place.append(make("p", { class: "quiet" }, `Seed ${run.seed}: ${run.accuracy.toFixed(2)} %, ${run.status}.`), charts);
    drawChart(layers, { title: "Each layer alone", x: "layer (from 1)", y: "test accuracy (%)", kind: "layers", series: [{ name: "alone", color: 0, points: known }] });
    drawChart(losses, { title: "Training loss of each layer", x: "epoch", y: "loss", kind: "loss", series: run.losses.map((layer, i) => ({ name: `layer ${i + 1}`, color: i, points: lossPoints(layer) })) });
    if (run.confusion.length) place.append(confusion(run.confusion, cell.names));
    place.append(facts(run.facts));
  };
  const openCell = async (number) => {
    const data = await loaded;
    const cell = data.cells[number];
    document.getElementById("cell-title").textContent = cell.title;
    const inside = document.getElementById("cell-body");
    const against = cell.paper ? `Paper: ${cell.paper}.` : "The paper has no number for it.";
    inside.replaceChildren(make("p", {}, make("strong", {}, `${cell.text} %`), ` ${cell.setting}. ${against} ${cell.note}`));
    const place = make("div");
    if (cell.runs.length > 1) {
      const choice = make("select", { "aria-label": "Seed" });
      cell.runs.forEach((run, i) => choice.append(make("option", { value: i }, `seed ${run.seed}: ${run.accuracy.toFixed(2)}`)));
      choice.addEventListener("change", () => showRun(place, cell, cell.runs[Number(choice.value)]));
      inside.append(choice);
    }
    inside.append(place);
    showRun(place, cell, cell.runs[0]);
    const rest = Object.fromEntries(Object.entries(data.defaults).filter(([name]) => !(name in cell.fields)));
    inside.append(make("h3", {}, "Fields that differ from the defaults"), facts(cell.fields), make("h3", {}, "Defaults"), facts(rest), make("p", { class: "quiet" }, cell.id));
    dialog.showModal();
    dialog.scrollTop = 0;
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.open");
    if (button) openCell(Number(button.dataset.cell));
    if (event.target === dialog || event.target.closest("#close")) dialog.close();
  });

  // While a grid runs, the page follows it; not under the reader's hands, and not for ever.
  if ("live" in document.documentElement.dataset) {
    const started = Date.now();
    const timer = setInterval(() => {
      if (Date.now() - started > 3600e3) clearInterval(timer);
      else if (!dialog.open && !touched && !filter.value && !document.hidden) location.reload();
    }, 15000);
  }
})();
