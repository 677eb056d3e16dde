"""What Pando's plan of one step allocates, by kind."""
import csv
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
from workloads import Workload  # noqa: E402


def by_kind(pando: str, workload: Workload) -> Dict[str, int]:
    """Bytes, the most of each kind at any time of the step; kept_bytes is what batch norms keep for backward."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pando, "model", workload.model, "--batch", str(workload.batch), "--classes", str(workload.classes),
                   "--optimizer", workload.optimizer, "--momentum", str(workload.momentum), "--set",
                   f"train.activation_checkpointing={'true' if workload.checkpoints else 'false'}",
                   "--memory-timeline", f"{folder}/step"]
        subprocess.run(command, check=True, capture_output=True)
        with open(f"{folder}/step.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))

    def most(*columns: str) -> int:
        return max(sum(int(row[f"{column}_bytes"]) for column in columns) for row in rows)

    return {"parameters": most("parameters"), "gradients": most("gradients"),
            "optimizer": most("servers_optimizer_state"), "activations": most("activations", "kept"),
            "other": most("activation_gradients", "scratch")}
