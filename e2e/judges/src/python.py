"""Judges Python programs: they must compile, and do with Python 3.6 (the oldest that the supported systems bring).

Standard input: a JSON array of programs. Standard output: for each, an array of [place, complaint].
"""
import ast
import json
import sys

OLDEST = (3, 6)

# What scripts like ours would use of the standard library, and since when it exists. The parser knows about syntax.
MODULES = {
    "contextvars": "3.7", "dataclasses": "3.7", "importlib.resources": "3.7", "importlib.metadata": "3.8",
    "graphlib": "3.9", "zoneinfo": "3.9", "tomllib": "3.11",
}
ATTRIBUTES = {
    "time_ns": "3.7", "monotonic_ns": "3.7", "nullcontext": "3.7", "fromisoformat": "3.7", "prod": "3.8", "cached_property": "3.8",
    "removeprefix": "3.9", "removesuffix": "3.9", "to_thread": "3.9", "is_relative_to": "3.9", "pairwise": "3.10", "file_digest": "3.11",
}
KEYWORDS = {"capture_output": "3.7", "text": "3.7", "dirs_exist_ok": "3.8", "missing_ok": "3.8", "root_dir": "3.10"}
GONE = {"distutils": "3.12", "imp": "3.12", "asyncore": "3.12", "crypt": "3.13", "cgi": "3.13", "pipes": "3.13", "telnetlib": "3.13"}


def findings(tree):
    for node in ast.walk(tree):
        place = f"line {getattr(node, 'lineno', 0)}"
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module == "__future__" and any(alias.name == "annotations" for alias in node.names):
                yield place, "from __future__ import annotations needs Python 3.7"
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield place, f"{node.attr} needs Python {ATTRIBUTES[node.attr]}"
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in KEYWORDS:
                    yield place, f"the argument {keyword.arg} needs Python {KEYWORDS[keyword.arg]}"
        for name in names:
            if name in MODULES:
                yield place, f"module {name} needs Python {MODULES[name]}"
            if name.split(".")[0] in GONE:
                yield place, f"module {name} is gone in Python {GONE[name.split('.')[0]]}"


def judge(text):
    try:
        compile(text, "script", "exec")
        tree = ast.parse(text, feature_version=OLDEST)
    except (SyntaxError, ValueError) as error:
        return [(f"line {getattr(error, 'lineno', None) or 1}", getattr(error, "msg", None) or str(error))]
    return list(dict.fromkeys(findings(tree)))


json.dump([judge(text) for text in json.load(sys.stdin)], sys.stdout)
