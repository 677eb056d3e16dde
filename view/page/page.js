// The page of `pando view`: takes the stream of events, and shows the selected run, or all runs.
import { ask, readEvents, takeToken } from "./access.js";
import { addCharts, forgetColors, makeCharts } from "./charts.js";
import { confirmFirst, find, keyed, make, setText } from "./dom.js";
import { renderComparison, renderHeader, renderStalls, renderTabs } from "./header.js";
import { renderPanels } from "./panels.js";
import { logName, Run } from "./run.js";

const RENDER_MS = 500;  // at most two drawings a second
const RETRY_MS = 3000;
const [LOG_MS, NOTICE_MS] = [2000, 8000];

let runs = [];
let selected = null;  // null: all runs
let connection = "lost";
let timer = null;
let renderedAt = -RENDER_MS;
const view = { byTime: false, isLog: false, isSmooth: true, zoom: null };
const charts = makeCharts(view, redraw);

// ---- the stream -----------------------------------------------------------------------------------
const handlers = { hello: onHello, update: onUpdate };

async function connect() {
  const answer = await ask("api/stream").catch(() => null);
  connection = answer?.ok ? "live" : answer?.status === 401 ? "refused" : "lost";
  renderSoon();
  if (connection === "refused") return;  // it connects again when it gets another token
  try {
    if (answer?.ok) for await (const [kind, data] of readEvents(answer.body)) handlers[kind]?.(data);
  } finally {
    connection = "lost";
    renderSoon();
    setTimeout(connect, RETRY_MS);
  }
}

function onHello(hello) {
  setText(find("version"), hello.version ?? "");
  const isFirst = runs.length === 0;
  runs = (hello.runs ?? []).map((info) => {
    const known = runs.find((run) => run.id === info.run);
    known?.learn(info, hello.columns);
    return known ?? new Run(info, hello.columns);
  });
  if (isFirst) selectByAddress();
  else if (!runs.includes(selected)) selected = runs.length === 1 ? runs[0] : null;
  renderNow();
}

function onUpdate(update) {
  runs.find((run) => run.id === update.run)?.apply(update);
  renderSoon();
}

function renderConnection() {
  const shown = selected ? [selected] : runs;
  const isEnded = shown.length > 0 && shown.every((run) => run.isEnded);
  const state = isEnded ? "ended" : connection;
  const texts = { live: "live", ended: "ended",
    lost: runs.length === 0 ? "connecting" : "connection lost",
    refused: "no token: open the printed address" };
  find("connection").dataset.state = state;
  setText(find("connection"), texts[state]);
}

// ---- drawing --------------------------------------------------------------------------------------
function renderSoon() {
  timer ??= setTimeout(renderNow, Math.max(0, renderedAt + RENDER_MS - performance.now()));
}

function renderNow() {
  clearTimeout(timer);
  timer = null;
  if (document.hidden) return;
  renderedAt = performance.now();
  renderConnection();
  renderTabs(runs, selected, select);
  for (const part of document.querySelectorAll(".one-run")) part.hidden = !selected && runs.length > 0;
  renderStalls(selected ? [selected] : runs, openLog);
  find("all-runs").hidden = Boolean(selected) || runs.length === 0;
  find("zoom-reset").hidden = view.zoom === null;
  if (selected) {
    renderHeader(selected);
    renderPanels(selected, { openLog, drain });
    document.title = `${selected.name}: ${find("step").textContent} – pando`;
  } else {
    renderComparison(runs, select);
    document.title = "pando";
  }
  const shown = selected ? [selected] : runs;
  addCharts(charts, shown, view, redraw);
  for (const chart of charts) chart.show(shown);
}

// Redraws after a change of the charts' look.
function redraw() {
  for (const chart of charts) chart.isDirty = true;
  renderNow();
}

// ---- the user's choices -------------------------------------------------------------------------
function select(run) {
  selected = run;
  view.zoom = null;
  history.replaceState(null, "", run ? `#run-${run.id}` : "#all");
  redraw();
}

function selectByAddress() {
  const named = runs.find((run) => location.hash === `#run-${run.id}`);
  selected = named ?? (runs.length === 1 ? runs[0] : null);
}

function listen() {
  for (const input of document.querySelectorAll("input[name=x]")) {
    input.onchange = () => {
      view.byTime = input.value === "time";
      view.zoom = null;
      redraw();
    };
  }
  for (const input of document.querySelectorAll("input[name=loss-scale]")) {
    input.onchange = () => { view.isLog = input.value === "log"; redraw(); };
  }
  find("smooth").onchange = (event) => { view.isSmooth = event.target.checked; redraw(); };
  find("zoom-reset").onclick = () => { view.zoom = null; redraw(); };
  find("snapshot").onclick = () => control("snapshot", { run: selected.id });
  find("stop").onclick = () => stop(selected);
  find("log-name").onchange = () => loadLog();
  find("log-dialog").onclose = () => clearInterval(log.timer);
  addEventListener("hashchange", () => { if (takeToken()) location.reload(); });
  document.addEventListener("visibilitychange", renderNow);
  addEventListener("scroll", renderSoon, { passive: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColors();
    redraw();
  });
}

// ---- control --------------------------------------------------------------------------------------
function drain(run, node) {
  const question = `Drain ${node.name} of ${run.name}? Others take over its work, then it leaves.`;
  confirmFirst(question, "Drain", () =>
    control("drain", { run: run.id, node: logName(node.name) }));
}

function stop(run) {
  const question = `Stop ${run.name}? It stores a snapshot and ends; pando resume continues it.`;
  confirmFirst(question, "Stop the run", () => control("stop", { run: run.id }));
}

async function control(path, body) {
  try {
    const answer = await ask(`api/${path}`, { method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-Pando": "1" } });
    const reply = await answer.json().catch(() => ({}));
    notice(reply.text ?? reply.error ?? `The answer has status ${answer.status}.`, answer.ok);
  } catch {
    notice(`No answer to ${path}: the connection is lost.`, false);
  }
}

let noticeTimer = null;
function notice(text, isGood) {
  clearTimeout(noticeTimer);
  setText(find("notice"), text);
  find("notice").dataset.state = isGood ? "good" : "bad";
  find("notice").hidden = false;
  noticeTimer = setTimeout(() => { find("notice").hidden = true; }, NOTICE_MS);
}

// ---- logs -----------------------------------------------------------------------------------------
const log = { run: null, timer: null };

function openLog(run, name) {
  log.run = run;
  setText(find("log"), "");
  keyed(find("log-name"), run.logs, (own) => own, (own) => make("option", { value: own }, own), () => {});
  find("log-name").value = name;
  if (!find("log-dialog").open) find("log-dialog").showModal();
  clearInterval(log.timer);
  log.timer = setInterval(() => { if (!document.hidden && !log.run.isEnded) loadLog(); }, LOG_MS);
  loadLog();
}

async function loadLog() {
  const [own, name] = [log.run, find("log-name").value];
  let text;
  try {
    const query = new URLSearchParams({ run: own.id, name });
    const answer = await ask(`api/log?${query}`);
    text = await answer.text();
  } catch {
    text = "The log cannot be read: the connection is lost.";
  }
  if (own !== log.run || name !== find("log-name").value) return;  // another one was chosen meanwhile
  const box = find("log");
  const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
  setText(box, text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, "") || "The log is empty.");
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

takeToken();
listen();
connect();
renderNow();
