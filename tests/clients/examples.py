"""Validates every example of openapi.json against its schema (JSON Schema 2020-12, formats included)."""

import json
import sys

from jsonschema import Draft202012Validator, FormatChecker

with open("openapi.json", encoding="utf-8") as file:
    document = json.load(file)
components = {"components": document["components"]}
checked = 0
faults = []
for path, item in document["paths"].items():
    for method, operation in item.items():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (content for body in bodies for content in body.get("content", {}).values()):
            if "example" not in content:
                continue
            checked += 1
            validator = Draft202012Validator({**components, **content["schema"]}, format_checker=FormatChecker())
            faults += [f"{method} {path}: {fault.json_path}: {fault.message}" for fault in validator.iter_errors(content["example"])]
print("\n".join(faults) or f"{checked} examples are valid")
sys.exit(1 if faults or checked < 100 else 0)
