// The top of the page: a run's name, progress and figures; of several runs the table that compares them.
import { fillRow, find, keyed, make, makeRow, setText } from "./dom.js";
import * as format from "./format.js";
import { logName } from "./run.js";

const COMPARED = ["run", "model", "phase", "step", "loss", "training accuracy", "accuracy",
  "images/s", "elapsed", "faults"];
const PHASE_STATES = { training: "good", completed: "good", failed: "bad", "no answer": "bad" };

function setPhase(badge, run) {
  setText(badge, run.phase);
  badge.dataset.state = PHASE_STATES[run.phase] ?? "warn";
}

export function renderHeader(run) {
  setText(find("name"), run.name);
  setText(find("about"), [run.model, run.dataset && `on ${run.dataset}`, run.info.folder]
    .filter(Boolean).join(" · "));
  setPhase(find("phase"), run);
  renderProgress(run);
  const evaluated = run.evaluations.at(-1)?.[3];
  const figures = {
    elapsed: format.duration(run.newest("elapsed_seconds") ?? run.summary?.wall_seconds),
    left: run.secondsLeft === null ? "–" : `~${format.duration(run.secondsLeft)}`,
    epoch: format.finite(run.newest("epoch"))?.toFixed(2) ?? "–",
    speed: format.count(run.isEnded ? run.summary.images_per_second : run.newest("images_per_second")),
    "step-time": format.milliseconds(run.newest("step_ms")),
    loss: format.significant(run.newest("loss")),
    accuracy: format.share(evaluated ?? run.newest("accuracy")),
  };
  for (const [id, text] of Object.entries(figures)) setText(find(`figure-${id}`), text);
  setText(find("speed-of"), run.isEnded ? "images/s, mean" : "images/s");
  find("accuracy-card").hidden = !run.hasAccuracy;
  setText(find("accuracy-of"), evaluated == null ? "training accuracy" : `${run.evaluatedOn} accuracy`);
  renderStall(run);
  for (const id of ["snapshot", "stop"]) find(id).hidden = !run.info.can_control || !run.status;
}

function renderProgress(run) {
  const { step, stepCount } = run;
  setText(find("step"), `step ${format.count(step)}${stepCount ? ` of ${format.count(stepCount)}` : ""}`);
  const percent = stepCount && step !== null ? Math.min(100, 100 * step / stepCount) : null;
  setText(find("percent"), percent === null ? "" : `${percent.toFixed(1)} %`);
  find("bar").style.width = `${percent ?? 0}%`;
  const progress = find("progress");
  if (percent === null) progress.removeAttribute("aria-valuenow");
  else progress.setAttribute("aria-valuenow", percent.toFixed(1));
}

// Says what the run waits for. The reason is for example "1 of 2 workers", "for its journal: ...",
// or "no worker", which names nothing to wait for.
function stallText(run) {
  if (run.isEnded) return run.summary.failure ? `Failed: ${run.summary.failure}` : "";
  const reason = run.status?.waiting_for;
  if (!reason) return "";
  if (run.phase === "gathering") return `Waiting for the first processes; here: ${reason}`;
  return /^(for|no|restoring) /.test(reason) ? `Waiting: ${reason}` : `Waiting for ${reason}`;
}

function renderStall(run) {
  const text = stallText(run);
  setText(find("stall"), text);
  find("stall").hidden = text === "";
  find("stall").dataset.state = run.isEnded ? "bad" : "warn";
}

// Shows above all else which process delays each of these runs. `openLog` takes (run, name).
export function renderStalls(runs, openLog) {
  const stalled = runs.filter((run) => run.stall);
  find("stalls").hidden = stalled.length === 0;
  keyed(find("stalls"), stalled, (run) => run.id,
    (run) => make("div", { class: "stalled", "data-stalled": run.id }, make("p"), make("pre"),
      make("button", { class: "link", onclick: () => openLog(run, logName(run.stall.waited_for)) })),
    (banner, run) => {
      const [text, line, log] = banner.children;
      const { stall } = run;
      setText(text, runs.length > 1 ? `${run.name}: ${stall.text}` : stall.text);
      setText(line, stall.log_line);
      line.hidden = !stall.log_line;
      setText(log, `Log of ${stall.waited_for}`);
      log.hidden = !run.logs.includes(logName(stall.waited_for));
    });
}

// ---- several runs ---------------------------------------------------------------------------------
export function renderTabs(runs, selected, select) {
  find("run-tabs").hidden = runs.length < 2;
  const tabs = runs.length < 2 ? runs : [null, ...runs];
  keyed(find("run-tabs"), tabs, (run) => (run ? `run ${run.id}` : "all"),
    (run) => make("button", { "data-run": run ? run.id : "all", onclick: () => select(run) }),
    (tab, run) => {
      setText(tab, run ? run.name : "All runs");
      tab.setAttribute("aria-pressed", String(run === selected));
    });
}

export function renderComparison(runs, select) {
  keyed(find("comparison").tBodies[0], runs, (run) => run.id, (run) => {
    const row = makeRow(COMPARED, { "data-run": run.id });
    row.cells[0].append(make("button", { class: "link", onclick: () => select(run) }));
    row.cells[2].append(make("span", { class: "badge" }));
    return row;
  }, (row, run) => {
    const [name, badge] = [row.cells[0].firstChild, row.cells[2].firstChild];
    setText(name, run.name);
    setPhase(badge, run);
    const steps = run.stepCount ? ` of ${format.count(run.stepCount)}` : "";
    fillRow(row, [name, `${run.model} · ${run.dataset}`, badge, format.count(run.step) + steps,
      format.significant(run.newest("loss")), format.share(run.newest("accuracy")),
      format.share(run.evaluations.at(-1)?.[3]),
      format.count(run.newest("images_per_second")), format.duration(run.newest("elapsed_seconds")),
      format.count(run.faultCount)]);
  });
}
