"""Checks deploy/monitoring: the Grafana dashboard, the alert rules and the example of a Prometheus.

    tests/e2e/view/monitoring_test.py [--metrics FILE]

promtool must accept rules and configuration, and the rules' tests (alerts_test.yml) must pass. Dashboard and rules must
use only metrics that the viewer serves: those of FILE, a text of /metrics, or else those of METRICS below. Exit code
77: promtool is missing.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parents[2] / "deploy/monitoring"
DASHBOARD, RULES, CONFIG = DEPLOY / "grafana-dashboard.json", DEPLOY / "alerts.yml", DEPLOY / "prometheus.yml"
METRICS = {
    "pando_steps_total": "counter", "pando_step_duration_seconds": "histogram", "pando_samples_total": "counter",
    "pando_members": "gauge", "pando_faults_total": "counter", "pando_recovery_seconds": "histogram",
    "pando_exposed_sync_ratio": "gauge", "pando_data_stall_seconds_total": "counter",
    "pando_rollbacks_total": "counter", "pando_up": "gauge", "pando_run_complete": "gauge",
    "pando_train_loss": "gauge", "pando_evaluation_accuracy": "gauge", "pando_waiting": "gauge",
    "pando_stalled_seconds": "gauge",    "pando_wire_bytes_total": "counter", "pando_build_info": "gauge"}
NAME = re.compile(r"\bpando_\w+")
COUNTED = re.compile(r"\b(?:rate|increase)\(\s*(pando_\w+)")  # functions that need a counter
COMMAND = re.compile(r"\bpando (\w+)")
SEVERITIES = {"warning", "critical"}


def read_metrics(path: Path) -> dict[str, str]:
    """name -> type, of the lines "# TYPE NAME TYPE"."""
    return dict(re.findall(r"^# TYPE (pando_\w+) (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE))


def list_series(metrics: dict[str, str]) -> dict[str, bool]:
    """The series of the metrics, and whether each only grows."""
    series = {}
    for name, kind in metrics.items():
        if kind == "histogram":
            series.update({f"{name}_{part}": True for part in ("bucket", "sum", "count")})
        else:
            series[name] = kind == "counter"
    return series


def check_expression(where: str, text: str, series: dict[str, bool]) -> None:
    for name in NAME.findall(text):
        assert name in series, f"{where}: the viewer has no metric {name}: {text}"
    for name in COUNTED.findall(text):
        assert series[name], f"{where}: {name} is no counter: {text}"


def list_panels(panels: list) -> list:
    return [inner for panel in panels for inner in (panel, *list_panels(panel.get("panels", [])))]


def check_dashboard(series: dict[str, bool]) -> set[str]:
    """Returns the metrics that it shows."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["schemaVersion"] >= 36, "Grafana 9 and later"
    panels = list_panels(dashboard["panels"])
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids)), f"two panels have one id: {sorted(ids)}"
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    shown = set()
    for entry in panels + dashboard["annotations"]["list"] + [variables["run"]]:
        if entry.get("type") == "row":
            continue
        where = f"dashboard, {entry.get('title') or entry['name']}"
        assert entry["datasource"]["uid"] == "${datasource}", f"{where}: its data source is fixed"
        assert "targets" not in entry or entry["targets"], f"{where}: it shows nothing"
        text = json.dumps(entry)
        check_expression(where, text, series)
        shown.update(NAME.findall(text))
    return shown


def check_rules(series: dict[str, bool], commands: set[str]) -> None:
    # Names of metrics stand only in expressions, so a reader of YAML is not needed.
    _, *alerts = re.split(r"^ *- alert: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert alerts
    for alert in alerts:
        name = alert.split("\n", 1)[0]
        check_expression(f"alert {name}", alert, series)
        assert re.search(r"^ *for: \d+[smh]$", alert, re.MULTILINE), f"alert {name} has no 'for'"
        severity = re.search(r"severity: (\w+)", alert)
        assert severity and severity[1] in SEVERITIES, f"alert {name} has no severity"
        assert "summary:" in alert, f"alert {name} has no summary"
        named = set(COMMAND.findall(alert.split("description:", 1)[1]))
        assert named and named <= commands, f"alert {name}: expected commands of pando, found {named}"


def list_commands() -> set[str]:
    """As cli/main.cc registers them."""
    return set(re.findall(r'\{"(\w+)", Add\w+Command\(', (HERE.parents[2] / "cli/main.cc").read_text(encoding="utf-8")))


def promtool(*words: object) -> None:
    done = subprocess.run(["promtool", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, f"promtool {' '.join(map(str, words))}:\n{done.stdout}"


def check_config() -> None:
    """With the files beside it that its heading asks for."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (RULES, CONFIG):
            shutil.copy(path, folder)
        (Path(folder) / "pando.token").write_text("token", encoding="utf-8")
        promtool("check", "config", Path(folder) / CONFIG.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path)
    args = parser.parse_args()
    metrics = read_metrics(args.metrics) if args.metrics else METRICS
    missing = sorted(METRICS.items() - metrics.items())
    assert not missing, f"the viewer does not serve {missing}"
    series = list_series(metrics)
    shown = check_dashboard(series)
    unseen = [name for name in METRICS if not any(seen.startswith(name) for seen in shown)]
    assert not unseen, f"the dashboard does not show {unseen}"
    check_rules(series, list_commands())
    if shutil.which("promtool") is None:
        print("SKIPPED: promtool is missing: apt-get install prometheus. Names and panels are checked, rules and "
              "configuration are not.", file=sys.stderr)
        sys.exit(SKIPPED)
    promtool("check", "rules", RULES)
    promtool("test", "rules", HERE / "alerts_test.yml")
    check_config()


if __name__ == "__main__":
    main()
