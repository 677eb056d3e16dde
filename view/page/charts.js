// The charts: one uPlot each, with the curves of one run, or of several over each other.
import { find, make } from "./dom.js";
import * as format from "./format.js";
import { ROWS_MAX, recoveredText, thin } from "./run.js";

const COLORS = 8;  // --c1 to --c8 of page.css
const DASHES = [[], [7, 4], [2, 3]];  // for more runs
const SMALLEST = 1e-12;  // the least value on a logarithmic axis
const LEFT = 58;  // the plots' left edge, in pixels: equal, so that they are aligned
const SECONDS = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
  7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000];  // between ticks

const SPECS = [
  { id: "chart-loss", column: "loss", evaluated: 4, isSmooth: true, text: format.significant },
  { id: "chart-accuracy", column: "accuracy", evaluated: 3, isSmooth: true, factor: 100, max: 100,
    text: format.percent, tick: (v) => `${Number(v.toFixed(4))} %` },
  { id: "chart-lr", column: "lr", text: format.significant },
  { id: "chart-speed", column: "images_per_second", isFromZero: true, text: format.count,
    tick: format.short },
];

// `view`: the settings of all charts: byTime, isLog, isSmooth, and zoom: [from, to] on x, or null.
export function makeCharts(view, redraw) {
  return SPECS.map((spec) => new Chart(document.getElementById(spec.id), spec, view, redraw));
}

// Adds a chart for each of the programs' own results.
export function addCharts(charts, runs, view, redraw) {
  const own = runs.flatMap((run) => [
    ...run.means.map((mean) => ({ mean })),
    ...run.logged.map((column) => ({ column, isLogged: true, isSmooth: true })),
  ]);
  for (const kind of own) {
    const { mean, column } = kind;
    if (charts.some(({ spec }) => spec.mean === mean && spec.column === column)) continue;
    const name = mean ?? column;
    const element = make("section", { class: "card chart", "data-mean": name }, make("h2", {}, name),
      make("p", { class: "readout" }), make("div", { class: "plot" }, make("p", { class: "note" })));
    find("charts").append(element);
    charts.push(new Chart(element, { ...kind, text: format.significant }, view, redraw));
  }
}

// ---- colors ---------------------------------------------------------------------------------------
let styles = new Map();
export const forgetColors = () => { styles = new Map(); };

export function color(name) {
  if (!styles.has(name)) {
    styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return styles.get(name);
}

// ---- curves ---------------------------------------------------------------------------------------
// Returns a moving average, which shows the trend in the noise of single steps.
function smooth(values) {
  const keep = Math.max(0, 1 - 1 / Math.max(1, values.length / 60));
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * keep + value * (1 - keep);
    weight = weight * keep + (1 - keep);
    return sum / weight;
  });
}

function scaled(value, spec, view) {
  if (value === null || value === undefined) return null;
  if (spec.column === "loss" && view.isLog) return value > 0 ? Math.max(value, SMALLEST) : null;
  return value * (spec.factor ?? 1);
}

// Returns the curves of one run. `place` is its place among several; null if it is alone.
function runCurves(run, spec, view, place, rowsMax) {
  const columns = [...run.columns, ...run.logged];
  const rows = thin(run.rows, rowsMax);
  const xs = rows.map((row) => row[columns.indexOf(view.byTime ? "elapsed_seconds" : "step")] ?? row[0]);
  const ys = rows.map((row) => scaled(row[columns.indexOf(spec.column)], spec, view));
  const evaluated = spec.mean ? 5 + run.means.indexOf(spec.mean) : spec.evaluated;
  const style = { color: `--c${(place ?? 0) % COLORS + 1}`, width: 1.75,
    dash: DASHES[Math.floor((place ?? 0) / COLORS) % DASHES.length] };
  const name = place === null ? "" : `${run.name} `;
  const label = place === null ? (evaluated ? "training" : "") : run.name;
  const isSmoothed = Boolean(spec.isSmooth && view.isSmooth);
  const curves = [];
  if (!spec.mean && (!isSmoothed || place === null)) {
    curves.push({ ...style, label: isSmoothed ? null : label, alpha: isSmoothed ? 0.35 : 1,
      width: isSmoothed ? 1 : style.width, xs, ys });
  }
  if (isSmoothed) curves.push({ ...style, label, xs, ys: smooth(ys) });
  if (evaluated) {
    const own = place === null ? { color: "--c2" } : {};
    curves.push({ ...style, ...own, label: `${name}${run.evaluatedOn}`, hasDots: true,
      xs: run.evaluations.map((row) => (view.byTime ? row[2] ?? 0 : row[0])),
      ys: run.evaluations.map((row) => scaled(row[evaluated], spec, view)) });
  }
  return curves;
}

function faultMarks(run, view) {
  return run.faults.map((fault) => {
    const ms = format.finite(fault.detected_ms) ?? format.finite(fault.injected_ms);
    const x = view.byTime ? (ms === null ? null : ms / 1000) : format.finite(fault.step);
    return { x, text: `${fault.target}: ${fault.action}, recovered: ${recoveredText(fault)}` };
  }).filter((mark) => mark.x !== null);
}

// Returns the place of the nearest value to the left, or else to the right: not every step has one.
function nearestKnown(values, from) {
  for (let at = from; at >= 0; --at) if (values[at] != null) return at;
  return Math.max(from, values.findIndex((value) => value != null));
}

// ---- axes -----------------------------------------------------------------------------------------
function secondsTick(value, increment) {
  const [unit, name] = increment >= 3600 ? [3600, "h"] : increment >= 60 ? [60, "min"] : [1, "s"];
  return `${Number((value / unit).toFixed(3))} ${name}`;
}

function yRange(spec, isLog, low, high) {
  if (low === null || high === null) return isLog ? [0.1, 10] : [0, 1];
  if (isLog) return uPlot.rangeLog(Math.max(low, SMALLEST), Math.max(high, SMALLEST), 10, false);
  const [from, to] = uPlot.rangeNum(spec.isFromZero ? Math.min(0, low) : low, high, 0.1, true);
  return [from, spec.max && high <= spec.max ? Math.min(to, spec.max) : to];
}

// ---- a chart --------------------------------------------------------------------------------------
class Chart {
  constructor(element, spec, view, redraw) {
    Object.assign(this, { element, spec, view, redraw, runs: [], marks: [], curves: [], layout: "" });
    this.plotElement = element.querySelector(".plot");
    this.readout = element.querySelector(".readout");
    this.note = element.querySelector(".note");
    this.isVisible = this.isDirty = false;
    new IntersectionObserver((entries) => {
      this.isVisible = entries.at(-1).isIntersecting;
      this.draw();
    }, { rootMargin: "100px" }).observe(element);
    new ResizeObserver(() => { this.isDirty = true; this.draw(); }).observe(this.plotElement);
  }

  show(runs) {
    this.runs = runs.filter((run) => (this.spec.isLogged ? run.logged.includes(this.spec.column)
      : !this.spec.mean || run.means.includes(this.spec.mean)));
    this.element.hidden = this.runs.length === 0 ? Boolean(this.spec.mean ?? this.spec.isLogged)
      : this.spec.column === "accuracy" && !runs.some((run) => run.hasAccuracy);
    this.element.dataset.points = runs.reduce((sum, run) => sum + run.rows.length, 0);
    const stamp = this.runs.map((run) => `${run.id}:${run.version}`).join();
    this.isDirty ||= stamp !== this.stamp;
    this.stamp = stamp;
    this.draw();
  }

  // Draws the chart if it is on the screen; otherwise it is drawn later.
  draw() {
    const width = this.plotElement.clientWidth;
    if (!this.isDirty || !this.isVisible || document.hidden || width === 0) return;
    this.isDirty = false;
    const isAlone = this.runs.length === 1;
    const rowsMax = Math.max(500, Math.floor(ROWS_MAX / Math.max(1, this.runs.length)));
    this.curves = this.runs.flatMap((run, i) =>
      runCurves(run, this.spec, this.view, isAlone ? null : i, isAlone ? ROWS_MAX : rowsMax));
    this.marks = this.runs.flatMap((run) => faultMarks(run, this.view));
    this.setNote();
    const data = uPlot.join(this.curves.map(({ xs, ys }) => [xs, ys]));
    const layout = JSON.stringify([this.view.byTime, this.isLog,
      this.curves.map(({ label, color: own, hasDots }) => [label, own, hasDots])]);
    if (this.plot && layout === this.layout) {
      if (this.plot.width !== width) this.plot.setSize({ width, height: this.plot.height });
      this.plot.setData(data);
    } else {
      this.layout = layout;
      this.build(data, width);
    }
    this.setReadout(this.plot);
  }

  get isLog() { return this.view.isLog && this.spec.column === "loss"; }

  setNote() {
    const isEmpty = this.curves.every(({ ys }) => ys.every((y) => y === null));
    const hasRows = this.runs.some((run) => run.rows.length);
    this.note.hidden = !isEmpty;
    this.note.textContent = hasRows ? "Not reported by the program" : "No completed step yet";
  }

  build(data, width) {
    this.plot?.destroy();
    this.makeReadout();
    const { spec, view } = this;
    const axis = { stroke: () => color("--muted"), ticks: { show: false },
      grid: { stroke: () => color("--grid"), width: 1 } };
    const tick = view.byTime ? secondsTick : format.short;
    this.plot = new uPlot({
      width, height: this.plotElement.clientHeight, padding: [10, 14, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: (u, low, high) => view.zoom ?? this.xRange(low, high) },
        y: { distr: this.isLog ? 3 : 1,
          range: (u, low, high) => yRange(spec, this.isLog, low, high) },
      },
      axes: [
        { ...axis, size: 30, space: 64, ...(view.byTime ? { incrs: SECONDS } : {}),
          values: (u, splits, i, space, increment) => splits.map((v) => tick(v, increment)) },
        { ...axis, size: LEFT,
          values: (u, splits) => splits.map((v) =>
            (v === null ? "" : (spec.tick ?? format.significant)(v))) },
      ],
      series: [{}, ...this.curves.map((curve) => this.series(curve))],
      cursor: this.cursor(),
      hooks: {
        draw: [(u) => this.drawFaults(u)],
        setCursor: [(u) => this.setReadout(u)],
        setSelect: [(u) => this.zoomTo(u)],
      },
    }, data, this.plotElement);
    this.plot.over.addEventListener("dblclick", () => this.setZoom(null));
  }

  xRange(low, high) {
    return low === null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high];
  }

  series({ color: own, width, alpha, dash, hasDots }) {
    const stroke = () => color(own);
    return { stroke, width, alpha: alpha ?? 1, dash, spanGaps: Boolean(hasDots),
      points: { show: Boolean(hasDots), size: 6, width: 1, stroke, fill: stroke } };
  }

  cursor() {
    const stroke = (u, i) => color(this.curves[i - 1].color);
    return {
      y: false, drag: { x: true, y: false, setScale: false, dist: 8 },
      points: { size: 8, width: 0, stroke, fill: stroke },
      dataIdx: (u, i, at) => (i === 0 ? at : nearestKnown(u.data[i], at)),
      sync: { key: "charts", scales: ["x", null],
        filters: { pub: (type) => type === "mousemove", sub: () => true } },
    };
  }

  zoomTo(u) {
    const { left, width } = u.select;
    if (width < 8) return;
    this.setZoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
    u.setSelect({ left: 0, width: 0, height: 0 }, false);
  }

  setZoom(zoom) {
    this.view.zoom = zoom;
    this.redraw();
  }

  drawFaults(u) {
    const { ctx, bbox } = u;
    const scale = window.devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--fault");
    ctx.lineWidth = scale;
    ctx.setLineDash([4 * scale, 3 * scale]);
    for (const { x } of this.marks) {
      const at = Math.round(u.valToPos(x, "x", true));
      if (at < bbox.left || at > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(at - 4 * scale, bbox.top - 6 * scale);
      ctx.lineTo(at + 4 * scale, bbox.top - 6 * scale);
      ctx.lineTo(at, bbox.top + scale);
      ctx.fill();
    }
    ctx.restore();
  }

  // ---- the values under the cursor, else the newest ones -------------------------------------------
  makeReadout() {
    const named = this.curves.filter(({ label }) => label !== null);
    this.readout.replaceChildren(...named.map((curve) => {
      const item = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = curve.hasDots ? "swatch dots" : "swatch";
      swatch.style.setProperty("--own", `var(${curve.color})`);
      item.append(swatch, curve.label ? `${curve.label} ` : "", document.createElement("b"));
      return item;
    }), document.createElement("span"));
  }

  setReadout(u) {
    if (!u?.cursor || !this.readout.lastChild) return;
    const at = u.cursor.idx;
    let item = this.readout.firstChild;
    this.curves.forEach(({ label }, i) => {
      if (label === null) return;
      const values = u.data[i + 1] ?? [];
      const index = at == null ? nearestKnown(values, values.length - 1) : u.cursor.idxs[i + 1];
      item.lastChild.textContent = this.spec.text(values[index]);
      item = item.nextSibling;
    });
    this.readout.lastChild.textContent = at == null ? "" : this.placeText(u, u.data[0][at]);
  }

  placeText(u, x) {
    const near = this.marks.find((mark) => Math.abs(u.valToPos(mark.x, "x") - u.cursor.left) < 5);
    if (near) return `▼ ${near.text}`;
    return this.view.byTime ? `at ${format.duration(x)}` : `at step ${format.count(x)}`;
  }
}
