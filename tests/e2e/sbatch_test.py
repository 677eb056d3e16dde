"""deploy/slurm/pando.sbatch with stand-ins for Slurm and pando: the endpoints that it makes of a node's address."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/slurm/pando.sbatch"
PROGRAMS = {
    "scontrol": 'case "$2" in hostnames) echo "$3" ;; node) echo "NodeName=$3 NodeAddr=$ADDRESS Port=1" ;; esac',
    "srun": 'while case $1 in --*) ;; *) false ;; esac do shift; done; exec "$@"',
    "pando": 'echo "$*" >> "$CALLS"; [ "$1" != keys ] || mkdir -p "$3"',
}


def endpoints(address: str):
    """(--bind, --join) of the processes that the script starts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, text in PROGRAMS.items():
            path = folder / program
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        variables = {"PATH": f"{folder}:{os.environ['PATH']}", "ADDRESS": address, "CALLS": str(folder / "calls"),
                     "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-1"}
        subprocess.run(["bash", str(SCRIPT), "job.toml", str(folder / "run")], env=variables, timeout=60, check=True)
        words = (folder / "calls").read_text().split()
        return words[words.index("--bind") + 1], words[words.index("--join") + 1]


class EndpointsTest(unittest.TestCase):
    def test_an_address_of_ipv6_is_in_brackets_and_the_scheduler_listens_there(self):
        for address in ("::1", "fd00::2", "2001:db8:0:1:2:3:4:5"):
            self.assertEqual(endpoints(address), ("tcp://[::]:20014", f"tcp://[{address}]:20014"))
        self.assertEqual(endpoints("[fd00::2]"), ("tcp://[::]:20014", "tcp://[fd00::2]:20014"))

    def test_names_and_addresses_of_ipv4_are_as_they_are(self):
        for address in ("10.0.0.1", "node-1.cluster"):
            self.assertEqual(endpoints(address), ("tcp://0.0.0.0:20014", f"tcp://{address}:20014"))


if __name__ == "__main__":
    unittest.main()
