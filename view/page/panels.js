// The panels of one run: cluster, strips of time, faults, evaluations, confusion matrix, job, logs, events.
import { color } from "./charts.js";
import { fillRow, find, hasChanged, keyed, make, makeRow, setText } from "./dom.js";
import * as format from "./format.js";
import { logName, noticedText, recoveredText, recoveryMs, STRIP_SECONDS } from "./run.js";

const ROWS_SHOWN = 200;
const CLASSES_MAX = 100;  // in a confusion matrix
const ACTIVITIES = [["computing", /comput/, "--computing"], ["waiting for samples", /sample|data/, "--samples"],
  ["waiting for parameters", /param/, "--parameters"], ["exchanging", /exchang|push|send|sync/, "--exchanging"],
  ["other", /./, "--other"]];
const NODE_LABELS = ["process", "host", "health", "activity", "step", "waiting for", "micro-batch",
  "primaries / backups / syncing", "connections", "silent", ""];
const FAULT_LABELS = ["process", "fault", "at step", "noticed", "recovered"];

// Shows the panels that have news. `actions` has openLog(run, name) and drain(run, node).
export function renderPanels(run, actions) {
  renderCluster(run, actions);
  renderStrips(run);
  renderFaults(run);
  renderEvaluations(run);
  renderConfusion(run);
  renderEvents(run);
  renderLogs(run, actions);
  setText(find("job"), run.info.job || "The job is not known.");
}

// ---- cluster --------------------------------------------------------------------------------------
function renderCluster(run, actions) {
  const order = { scheduler: 0, server: 1, worker: 2 };
  const nodes = run.isEnded ? [] : [...run.nodes].sort((a, b) =>
    (order[a.role] ?? 3) - (order[b.role] ?? 3) || (a.rank ?? 0) - (b.rank ?? 0));
  setText(find("cluster-note"), clusterText(run, nodes));
  find("cluster").hidden = nodes.length === 0;
  find("cluster").classList.toggle("stale", !run.status);
  keyed(find("cluster").tBodies[0], nodes, (node) => `${run.id} ${node.name}`,
    (node) => makeNodeRow(run, node, actions), (row, node) => fillNodeRow(row, run, node));
}

function clusterText(run, nodes) {
  if (run.isEnded) return "The run has ended: no process is left.";
  if (!run.status) return ["No scheduler answers", run.statusError].filter(Boolean).join(": ");
  const has = (role) => nodes.filter((node) => node.role === role).length;
  const hosts = new Set(nodes.map((node) => node.host)).size;
  const snapshot = run.status.newest_snapshot;
  return [format.plural(hosts, "host"), format.plural(has("worker"), "worker"),
    format.plural(has("server"), "server"), `view ${run.status.view ?? "–"}`,
    `scheduler's term ${run.status.term ?? "–"}`,
    snapshot === undefined ? "no snapshot yet" : `newest snapshot: step ${format.count(snapshot)}`]
    .join(" · ");
}

function makeNodeRow(run, node, actions) {
  const row = makeRow(NODE_LABELS, { "data-node": node.name });
  row.cells[0].append(make("button", { class: "link", title: `Log of ${node.name}`,
    onclick: () => actions.openLog(run, logName(node.name)) }));
  row.cells[2].append(make("span", { class: "badge" }));
  row.cells[10].append(make("button", { class: "small", "data-drain": node.name,
    onclick: () => actions.drain(run, node) }, "Drain"));
  return row;
}

function fillNodeRow(row, run, node) {
  const [name, badge, drain] = [0, 2, 10].map((i) => row.cells[i].firstChild);
  setText(name, node.name);
  name.disabled = !run.logs.includes(logName(node.name));
  setText(badge, node.health ?? "unknown");
  badge.dataset.state = { ready: "good", suspect: "bad" }[node.health] ?? "warn";
  drain.hidden = !run.info.can_control || !run.status || Boolean(node.draining) || node.health === "leaving";
  const waits = node.waiting_ms > 0 ? ` for ${format.milliseconds(node.waiting_ms)}` : "";
  const replicas = [node.primaries, node.backups, node.syncing].map((n) => n ?? 0).join(" / ");
  const lines = Object.entries(node.lines ?? {}).filter(([, n]) => n > 0).map(([kind, n]) => `${kind} ${n}`);
  const us = format.finite(node.micro_batch_us);
  fillRow(row, [name, `${node.host ?? "–"}${node.pid ? `, process ${node.pid}` : ""}`, badge,
    node.activity ?? "unknown", format.count(node.step), node.waiting_for ? `${node.waiting_for}${waits}` : "",
    us ? format.milliseconds(us / 1000) : "", node.role === "server" ? replicas : "", lines.join(", "),
    node.silent_ms === 0 ? "< 0.1 s" : format.milliseconds(node.silent_ms), drain]);
}

// ---- strips of time -------------------------------------------------------------------------------
const byName = new Intl.Collator("en", { numeric: true }).compare;
const kindOf = (activity) => ACTIVITIES.find(([, words]) => words.test(activity)) ?? ACTIVITIES.at(-1);

function renderStrips(run) {
  const strips = [...run.strips].sort(([a], [b]) => byName(a, b));
  find("strips-card").hidden = strips.length === 0;
  if (find("strips-legend").children.length === 0) makeStripsLegend();
  keyed(find("strips"), strips, ([name]) => `${run.id} ${name}`,
    ([name]) => make("div", { class: "strip", "data-strip": name },
      make("span", {}, name), make("canvas", { role: "img" }), make("span", { class: "number" })),
    (row, [, spans]) => fillStrip(row, spans, run.stripsEnd));
}

function makeStripsLegend() {
  find("strips-legend").append(...ACTIVITIES.map(([name, , own]) => {
    const swatch = make("i", { class: "swatch block" });
    swatch.style.setProperty("--own", `var(${own})`);
    return make("span", {}, swatch, name);
  }));
}

function fillStrip(row, spans, end) {
  const [, canvas, text] = row.children;
  const begin = end - STRIP_SECONDS;
  const seconds = new Map();
  for (const [from, to, activity] of spans) {
    const [kind] = kindOf(activity);
    seconds.set(kind, (seconds.get(kind) ?? 0) + Math.max(0, to - Math.max(from, begin)));
  }
  const all = [...seconds.values()].reduce((sum, s) => sum + s, 0);
  const shares = [...seconds].map(([kind, s]) => `${kind} ${all ? Math.round(100 * s / all) : 0} %`);
  canvas.setAttribute("aria-label", shares.join(", "));
  canvas.title = shares.join(", ");
  setText(text, seconds.has("computing") && all ?
    `${Math.round(100 * seconds.get("computing") / all)} %` : "");
  const box = canvas.getBoundingClientRect();
  if (box.width && box.top < innerHeight && box.bottom > 0) drawStrip(canvas, box, spans, begin);
}

function drawStrip(canvas, box, spans, begin) {
  const scale = window.devicePixelRatio;
  const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const place = (time) => Math.max(0, (time - begin) / STRIP_SECONDS * width);
  for (const [from, to, activity] of spans) {
    context.fillStyle = color(kindOf(activity)[2]);
    context.fillRect(place(from), 0, Math.max(1, place(to) - place(from)), height);
  }
}

// ---- faults ---------------------------------------------------------------------------------------
function renderFaults(run) {
  const faults = run.faults.slice(-ROWS_SHOWN).reverse();
  find("faults").hidden = faults.length === 0;
  setText(find("faults-note"), faultsText(run));
  keyed(find("faults").tBodies[0], faults, (fault) => `${run.id} ${fault.id}`,
    (fault) => makeRow(FAULT_LABELS, { "data-fault": fault.target }),
    (row, fault) => fillFault(row, run, fault));
}

function faultsText(run) {
  const all = run.faultCount;
  if (all === 0) return "No fault so far.";
  const times = run.faults.map(recoveryMs).filter((ms) => ms !== null).sort((a, b) => a - b);
  if (times.length === 0) return format.plural(all, "fault");
  const median = format.milliseconds(times[Math.floor(times.length / 2)]);
  return `${format.plural(all, "fault")} · recovery: median ${median}, longest ` +
    format.milliseconds(times.at(-1));
}

function fillFault(row, run, fault) {
  const ms = recoveryMs(fault);
  if (ms !== null) row.dataset.recoveredMs = Number(ms.toFixed(3));
  row.title = run.events.findLast((e) => e.event === "dead" && e.details?.node === fault.target &&
    Math.abs(e.elapsed_ms - (fault.detected_ms ?? NaN)) < 1000)?.details.text ?? "";
  fillRow(row, [fault.target ?? "–", fault.action ?? "–", format.count(fault.step), noticedText(fault),
    recoveredText(fault)]);
}

// ---- evaluations ----------------------------------------------------------------------------------
function renderEvaluations(run) {
  const rows = run.evaluations.slice(-ROWS_SHOWN).reverse();
  const { results } = run;
  const [at, sign] = results.some(([name]) => name === "accuracy") ? [3, 1] : [4, -1];
  const best = run.evaluations.filter((row) => row[at] != null)
    .reduce((known, row) => (known && sign * known[at] >= sign * row[at] ? known : row), null);
  find("evaluations").hidden = rows.length === 0;
  setText(find("evaluations-note"), rows.length === 0 ? "No evaluation so far." :
    `${format.plural(run.evaluations.length, "evaluation")} on the ${run.evaluatedOn} set` +
    (best === null ? "" : at === 3 ? ` · best accuracy ${format.share(best[at])}`
      : ` · lowest loss ${format.significant(best[at])}`));
  if (!hasChanged(find("evaluations"), run.id, rows.length, rows[0], best)) return;
  const labels = ["step", "epoch", "elapsed", ...results.map(([name]) => name)];
  find("evaluations").tHead.replaceChildren(
    make("tr", {}, ...labels.map((label) => make("th", { class: "n" }, label))));
  find("evaluations").tBodies[0].replaceChildren(...rows.map((cells) => {
    const [step, epoch, elapsed] = cells;
    const row = makeRow(labels, { class: cells === best ? "best" : null });
    fillRow(row, [format.count(step), epoch === null ? "–" : epoch.toFixed(2), format.duration(elapsed),
      ...results.map(([, at]) => (at === 3 ? format.share : format.significant)(cells[at]))]);
    return row;
  }));
}

// ---- confusion matrix -----------------------------------------------------------------------------
function renderConfusion(run) {
  const matrix = run.summary?.confusion_matrix;
  const isShown = Array.isArray(matrix) && matrix.length > 1 && matrix.length <= CLASSES_MAX;
  find("confusion-card").hidden = !isShown;
  if (!isShown || !hasChanged(find("confusion"), run.id, matrix)) return;
  const names = matrix.map((_, i) => String(run.summary.class_names?.[i] ?? i));
  const mistakes = matrix.flatMap((counts, label) => counts.map((n, said) => ({ n, label, said })))
    .filter(({ n, label, said }) => n > 0 && label !== said).sort((a, b) => b.n - a.n).slice(0, 3);
  setText(find("confusion-note"), mistakes.length === 0 ? "No mistake." : `Most frequent mistakes: ${
    mistakes.map(({ n, label, said }) => `${names[label]} taken for ${names[said]} (${format.count(n)})`)
      .join(", ")}`);
  find("confusion").replaceChildren(confusionTable(matrix, names));
}

// Shows shares of the label's samples, in percent: the diagonal in one color, mistakes in another.
function confusionTable(matrix, names) {
  const head = make("tr", {}, make("th", { scope: "col" }, "label \\ predicted"),
    ...names.map((name) => make("th", { scope: "col", title: name }, name)));
  const rows = matrix.map((counts, label) => {
    const all = counts.reduce((sum, n) => sum + n, 0);
    return make("tr", {}, make("th", { scope: "row", title: names[label] }, names[label]),
      ...counts.map((n, said) => {
        const cell = make("td", { class: label === said ? "right" : "wrong",
          title: `${names[label]} predicted as ${names[said]}: ${n} of ${all}` }, n || "");
        cell.style.setProperty("--share", `${all ? 100 * n / all : 0}%`);
        return cell;
      }));
  });
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

// ---- events and logs ------------------------------------------------------------------------------
function renderEvents(run) {
  const events = run.events.slice(-ROWS_SHOWN).reverse();
  if (!hasChanged(find("events"), run.id, events.length, events[0])) return;
  find("events").replaceChildren(...events.map(({ elapsed_ms, event, details }) => {
    const { node, text, ...rest } = details ?? {};
    const more = Object.entries(rest).map(([key, value]) =>
      `${key} ${typeof value === "number" ? format.significant(value) : value}`);
    return make("li", { "data-event": event }, make("span", { class: "number" }, format.duration((elapsed_ms ?? NaN) / 1000)),
      make("b", {}, event ?? ""), make("span", {}, [node, text, ...more].filter(Boolean).join(" · ")));
  }));
}

function renderLogs(run, actions) {
  find("logs-card").hidden = run.logs.length === 0;
  keyed(find("logs"), run.logs, (name) => `${run.id} ${name}`,
    (name) => make("button", { "data-log": name, onclick: () => actions.openLog(run, name) }, name),
    () => {});
}
