"""deploy/kubernetes for pods.py: what `kubectl kustomize` makes of it, and a container's variables."""
import re
from pathlib import Path
from typing import Any

import yaml


def merge(base: Any, patch: Any) -> Any:
    """A strategic merge: named items of lists are merged by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: merge(base.get(key), value) for key, value in patch.items()}
    if isinstance(base, list) and isinstance(patch, list):
        items = base + patch
        for key in ("mountPath", "name"):
            if all(isinstance(item, dict) and key in item for item in items):
                merged: dict[str, Any] = {}
                for item in items:
                    merged[item[key]] = merge(merged.get(item[key]), item)
                return list(merged.values())
    return patch


def is_target(target: dict[str, str], resource: dict[str, Any]) -> bool:
    facts = {"kind": resource["kind"], "name": resource["metadata"]["name"]}
    return all(re.fullmatch(pattern, facts[field]) for field, pattern in target.items())


class Manifests:
    """The objects that a folder's kustomization.yaml names. `files`: those of each ConfigMap and Secret, by name."""

    def __init__(self, folder: Path):
        root = yaml.safe_load((folder / "kustomization.yaml").read_text())
        resources = [yaml.safe_load((folder / name).read_text()) for name in root["resources"]]
        for change in root["patches"]:
            patch = yaml.safe_load((folder / change["path"]).read_text() if "path" in change else change["patch"])
            for resource in resources:
                if is_target(change["target"], resource):
                    resource["spec"] = merge(resource["spec"], patch["spec"])
        self.policies = [resource["spec"] for resource in resources if resource["kind"] == "NetworkPolicy"]
        self.workloads = {resource["metadata"]["name"]: resource["spec"] for resource in resources
                          if "template" in resource["spec"]}
        self.files = {made["name"]: {Path(name).name: (folder / name).read_bytes() for name in made["files"]}
                      for made in root["configMapGenerator"] + root["secretGenerator"]}

    def reaches(self, sender: dict[str, str], receiver: dict[str, str], port: int) -> bool:
        """Whether a pod with these labels may dial this port of another one."""
        def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
            return selector["matchLabels"].items() <= labels.items()
        policies = [policy for policy in self.policies if selects(policy["podSelector"], receiver)]
        rules = [rule for policy in policies for rule in policy["ingress"]]
        return not policies or any(
            any(selects(peer["podSelector"], sender) for peer in rule["from"])
            and any(allowed["port"] == port for allowed in rule.get("ports", [{"port": port}])) for rule in rules)


def image_variables(dockerfile: Path) -> dict[str, str]:
    lines = re.findall(r"^ENV (.*)", dockerfile.read_text(), re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in line.split())


def expand(text: str, variables: dict[str, str]) -> str:
    """Replaces $(NAME) of a command or variable."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables.get(match[1], match[0]), text)


def container_variables(container: dict[str, Any], fields: dict[str, str]) -> dict[str, str]:
    """`fields`: what the downward API knows of the pod."""
    variables: dict[str, str] = {}
    for entry in container.get("env", []):
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        variables[entry["name"]] = fields[field] if field else expand(entry["value"], variables)
    return variables
