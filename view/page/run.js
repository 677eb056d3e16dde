// Run: the page's data about one run, from the updates of the stream. Nothing here draws.
import { finite, milliseconds } from "./format.js";

export const ROWS_MAX = 4000;
export const STRIP_SECONDS = 120;
const EVENTS_MAX = 1000;
const FAULTS_MAX = 1000;
const BUSY_PHASES = ["gathering", "training"];
const ENDED_PHASES = ["completed", "interrupted", "failed"];

// Returns half of `rowsMax` rows, evenly spread over the steps, if there are more than `rowsMax`.
// The newest row stays. The first cell of a row is its step.
export function thin(rows, rowsMax) {
  if (rows.length <= rowsMax) return rows;
  const [first, newest] = [rows[0][0], rows.at(-1)];
  const width = (newest[0] - first) / (rowsMax / 2);
  let last = -1;
  return rows.filter((row) => {
    const before = last;
    last = Math.floor((row[0] - first) / width);
    return last > before || row === newest;
  });
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// Returns `known` with the changes of a merge patch (RFC 7396). Names come from other machines, so
// the objects have no prototype.
function patched(known, changes) {
  if (!isObject(changes)) return changes;
  const merged = Object.assign(Object.create(null), isObject(known) ? known : {});
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) delete merged[key];
    else merged[key] = patched(merged[key], value);
  }
  return merged;
}

export class Run {
  constructor(info, columns) {
    this.learn(info, columns);
    this.clear();
    this.status = null;
    this.statusError = "";
    this.nodes = [];  // the last known ones, because a restarting scheduler does not answer
    this.logs = [];
    this.isKnown = false;  // no update yet
    this.version = 0;  // incremented when the charts change
  }

  learn(info, columns) {
    this.info = info;
    this.columns = columns ?? [];  // of metrics.csv
  }

  clear() {
    this.rows = [];
    this.evaluations = [];  // [step, epoch, elapsed_seconds, accuracy, loss, ...means]
    this.means = [];  // names of a program's other results
    this.logged = [];  // names of what it logs in training, the last cells of each row
    this.events = [];
    this.faultsById = new Map();
    this.strips = new Map();  // name -> [[from, to, activity], ...], in the viewer's seconds
    this.summary = null;
  }

  apply(update) {
    this.isKnown = true;
    if (update.replace) {
      this.clear();
      this.status = null;
    }
    if (update.replace || update.rows?.length || update.evaluations?.length) ++this.version;
    if (update.status !== undefined) this.setStatus(update.status, update.status_error);
    if (update.summary) this.summary = update.summary;
    this.addStrips(update.strips ?? {});
    if (update.logs) this.logs = update.logs;
    this.addRows(update.rows ?? []);
    if (update.logged) this.logged = update.logged;
    if (update.means) this.means = update.means;
    this.addEvaluations(update.evaluations ?? []);
    this.addEvents(update.events ?? []);
    this.addFaults(update.faults ?? []);
  }

  // Applies `changes`, a merge patch of the status; null: no scheduler answers.
  setStatus(changes, error) {
    this.status = patched(this.status, changes);
    this.statusError = this.status ? "" : error ?? this.statusError;
    if (!this.status) return;
    this.nodes = Object.values(this.status.nodes ?? {});
    if (BUSY_PHASES.includes(this.status.phase)) this.summary = null;  // `pando resume` goes on
  }

  // Adds new spans, and replaces those that have become longer.
  addStrips(strips) {
    for (const [name, spans] of Object.entries(strips)) {
      const known = this.strips.get(name) ?? [];
      for (const span of spans) {
        if (known.at(-1)?.[0] === span[0]) known.at(-1)[1] = span[1];
        else known.push(span);
      }
      this.strips.set(name, known);
    }
    const begin = this.stripsEnd - STRIP_SECONDS;
    for (const [name, spans] of this.strips) {
      this.strips.set(name, spans.filter(([, to]) => to >= begin));
      if (this.strips.get(name).length === 0) this.strips.delete(name);
    }
  }

  get stripsEnd() { return Math.max(0, ...[...this.strips.values()].map((spans) => spans.at(-1)[1])); }

  addRows(rows) {
    const elapsed = this.columns.indexOf("elapsed_seconds");
    for (const cells of rows) {
      const row = cells.map(finite);
      const before = this.rows.at(-1);
      if (row[0] == null || (before && row[0] <= before[0])) continue;
      row[elapsed] ??= before?.[elapsed] ?? 0;
      this.rows.push(row);
    }
    this.rows = thin(this.rows, ROWS_MAX);
  }

  // Adds evaluations. If a version is evaluated again, the last row counts.
  addEvaluations(evaluations) {
    for (const cells of evaluations) {
      const row = cells.map(finite);
      if (row[0] == null) continue;
      const at = this.evaluations.findLastIndex((known) => known[0] <= row[0]);
      const isAgain = at >= 0 && this.evaluations[at][0] === row[0];
      this.evaluations.splice(isAgain ? at : at + 1, isAgain ? 1 : 0, row);
    }
    this.evaluations = thin(this.evaluations, ROWS_MAX);
  }

  addEvents(events) {
    this.events = [...this.events, ...events.filter(Boolean)].slice(-EVENTS_MAX);
  }

  // Adds new faults, and updates those of which more is known.
  addFaults(faults) {
    for (const fault of faults) this.faultsById.set(fault.id, fault);
    for (const id of [...this.faultsById.keys()].slice(0, -FAULTS_MAX)) this.faultsById.delete(id);
    if (faults.length) ++this.version;
  }

  // ---- the shown values -------------------------------------------------------------------------
  get id() { return this.info.run; }
  get name() { return String(this.info.name || this.info.folder || `run ${this.id}`); }
  get model() { return this.status?.model ?? this.summary?.model ?? this.info.model ?? ""; }
  get dataset() { return this.status?.dataset ?? this.summary?.dataset ?? this.info.dataset ?? ""; }
  get evaluatedOn() { return this.info.evaluated_on || "test"; }
  get stall() { return !this.isEnded && this.status?.stall?.text ? this.status.stall : null; }
  get faults() { return [...this.faultsById.values()]; }
  get faultCount() {  // also counts faults that are not shown
    return Math.max(this.faultsById.size, ...[this.status, this.summary].map((each) => finite(each?.fault_count) ?? 0));
  }
  get isEnded() { return Boolean(this.summary); }

  get phase() {
    if (this.summary) return ENDED_PHASES.find((p) => p === this.summary.status) ?? "ended";
    if (this.status) return this.status.phase || "unknown";
    return this.isKnown ? "no answer" : "connecting";
  }

  // Returns the newest value of a column of metrics.csv.
  newest(column) {
    return this.rows.at(-1)?.[this.columns.indexOf(column)] ?? null;
  }

  get step() {
    return finite(this.status?.step) ?? finite(this.summary?.steps) ?? this.newest("step");
  }

  get stepCount() {
    if (this.phase === "completed") return this.step;  // it may have stopped early
    const ofJob = /^\s*steps\s*=\s*(\d+)/m.exec(this.info.job ?? "");
    return finite(this.status?.step_count) ?? (ofJob && Number(ofJob[1]) > 0 ? Number(ofJob[1]) : null);
  }

  get secondsLeft() {
    const stepMs = this.newest("step_ms");
    if (this.phase !== "training" || !stepMs || this.stepCount === null) return null;
    return Math.max(0, this.stepCount - this.step) * stepMs / 1000;
  }

  // Returns whether a program's model reports accuracies; other networks always do.
  get hasAccuracy() {
    const at = this.columns.indexOf("accuracy");
    return this.rows.length === 0 || this.rows.some((row) => row[at] != null) ||
      this.evaluations.some((row) => row[3] != null);
  }

  // Returns the results of evaluations that the run has: their names, and their places in its rows.
  get results() {
    return [["accuracy", 3], ["loss", 4], ...this.means.map((name, i) => [name, 5 + i])]
      .filter(([, at]) => at > 4 || this.evaluations.some((row) => row[at] != null));
  }
}

// Returns the log's name for "server 1".
export const logName = (process) => String(process ?? "").replaceAll(" ", "-");

// ---- faults ---------------------------------------------------------------------------------------
// Returns the time from the fault, or else its detection, to recovery; null: not recovered yet.
export function recoveryMs(fault) {
  const isKnown = finite(fault.recovered_ms) !== null && finite(fault.detected_ms) !== null;
  const began = finite(fault.injected_ms) ?? fault.detected_ms;
  return isKnown ? Math.max(0, fault.recovered_ms - began) : null;
}

export function noticedText(fault) {
  if (finite(fault.detected_ms) === null) return "not noticed yet";
  const by = fault.detected_by ? `by ${fault.detected_by}` : "yes";
  if (finite(fault.injected_ms) === null) return by;
  return `${by}, after ${milliseconds(Math.max(0, fault.detected_ms - fault.injected_ms))}`;
}

export function recoveredText(fault) {
  const ms = recoveryMs(fault);
  if (ms === null) return "not recovered yet";
  return finite(fault.injected_ms) === null ? `${milliseconds(ms)} after detection` : `after ${milliseconds(ms)}`;
}
