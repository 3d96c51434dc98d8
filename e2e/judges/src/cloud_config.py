"""Judges cloud-config documents by the schema of one cloud-init version, more strictly than cloud-init itself does.

Argument: the directory of the `cloudinit` package. Standard input: a JSON array of documents. Standard output: for each, an
array of [place, complaint].
"""
import base64
import gzip
import json
import posixpath
import re
import sys

sys.path.insert(0, sys.argv[1])

import yaml  # noqa: E402
from cloudinit import version  # noqa: E402
from cloudinit.config import schema as cloudinit_schema  # noqa: E402

VERSION = "cloud-init " + ".".join(version.version_string().split(".")[:2])
SCHEMA = cloudinit_schema.get_schema()

# Complaints that are known to be wrong: 22.4 wants a number where the organisation is a string everywhere else.
WAIVED = {"cloud-init 22.4": {"rh_subscription.org"}}.get(VERSION, set())


class StrictLoader(yaml.SafeLoader):
    """YAML where a key stands once."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def top_level_keys(node):
    """What the schema calls a top-level key, also where it does not insist."""
    keys = set(node.get("properties", ()))
    if "$ref" in node:
        keys |= top_level_keys(SCHEMA["$defs"][node["$ref"].split("/")[-1]])
    for combination in ("allOf", "anyOf", "oneOf"):
        for part in node.get(combination, ()):
            keys |= top_level_keys(part)
    return keys


# The last three are as old as cloud-init; only the schema learned them late.
KEYS = top_level_keys(SCHEMA) | {"output", "merge_how", "merge_type"}


def schema_findings(document):
    unknown = [key for key in document if key not in KEYS]
    for key in unknown:
        yield str(key), f"{VERSION} knows no such top-level key"
    try:
        cloudinit_schema.validate_cloudconfig_schema(document, SCHEMA, strict=True)
    except cloudinit_schema.SchemaValidationError as error:
        for path, message in dict.fromkeys(tuple(p)[:2] for p in [*(error.schema_errors or ()), *(error.schema_deprecations or ())]):
            if path not in WAIVED and path not in unknown:
                yield path, f"{VERSION}: {message}"


def content_findings(entry):
    content, encoding = entry.get("content", ""), entry.get("encoding", "text/plain")
    if isinstance(content, str):
        content = content.encode()
    try:
        if encoding in ("b64", "base64", "gz+b64", "gz+base64", "gzip+b64", "gzip+base64"):
            content = base64.b64decode(b"".join(content.split()), validate=True)
        elif encoding != "text/plain" and encoding not in ("gz", "gzip"):
            yield "encoding", f"unknown encoding {encoding!r}"
        if encoding.startswith("gz"):
            gzip.decompress(content)
    except (ValueError, OSError, EOFError) as error:
        yield "content", f"does not decode as {encoding}: {error}"


def write_files_findings(entries):
    paths = set()
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue  # the schema says so
        path, permissions = entry.get("path"), entry.get("permissions", "0644")
        place = f"write_files[{index}]"
        if isinstance(path, str):
            place += f" ({path})"
            if not path.startswith("/") or posixpath.normpath(path) != path:
                yield place, "path is not absolute and plain"
            if path in paths and not entry.get("append"):
                yield place, "path is written twice"
            paths.add(path)
        if not (isinstance(permissions, str) and re.fullmatch("0?[0-7]{3,4}", permissions)):
            yield place, f"permissions {permissions!r} are not an octal number in a string"
        for key, message in content_findings(entry):
            yield f"{place}.{key}", message


def judge(text):
    if not re.match(r"#cloud-config\s*\n", text):
        yield "line 1", "is not #cloud-config"
    try:
        document = yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        yield (f"line {mark.line + 1}" if mark else ""), getattr(error, "problem", None) or str(error)
        return
    if not isinstance(document, dict):
        yield "", "is not a mapping"
        return
    yield from schema_findings(document)
    yield from write_files_findings(document.get("write_files"))


json.dump([list(judge(text)) for text in json.load(sys.stdin)], sys.stdout)
