"""Writes the list of a Kubernetes version's feature gates that the kubelet judge reads, to standard output.

Argument: the sources of that version, such as "$(go mod download -json k8s.io/kubernetes@v1.36.3 | jq -r .Dir)".
Result: e2e/judges/kubelet/feature-gates/<minor>.txt
"""
import pathlib
import re
import sys

import yaml

source = pathlib.Path(sys.argv[1])
release = re.search(r"@v(\d+\.\d+\.\d+)", source.name).group(1)
minor = tuple(map(int, release.split(".")[:2]))
reference = source / "test/compatibility_lifecycle/reference"

gates = {}
for file in sorted(reference.glob("*_feature_list.yaml")):
    for gate in yaml.safe_load(file.read_text()) or ():
        # The last state that this version has reached; an empty version is "always".
        states = [s for s in gate["versionedSpecs"] if tuple(map(int, (s["version"] or "0.0").split("."))) <= minor]
        if states:
            gates[gate["name"]] = str(states[-1]["default"]).lower() if states[-1]["lockToDefault"] else ""

print(f"# Feature gates of Kubernetes {release}, from its test/compatibility_lifecycle/reference; a locked gate has its only value.")
for name, locked in sorted(gates.items()):
    print(name, locked) if locked else print(name)
