"""Builds the wheel that the server serves: generates `bellwire.rest` from static/openapi.json, and packs all into clients/dist.

The generated functions have only the types of successful responses, because the client raises all others as `ProblemError`. `events_list`
has no `after`: the generator reads one JSON text per response, so `stream_events` is written by hand.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

here = Path(__file__).resolve().parent
package, rest = here / "src/bellwire", here / "src/bellwire/rest"
root, dist = here.parents[1], here.parent / "dist"
LINES_MAX = 150

lines = sum(len(path.read_text().splitlines()) for path in package.rglob("*.py") if rest not in path.parents)
if lines > LINES_MAX:
    sys.exit(f"src/bellwire has {lines} lines that are not generated; {LINES_MAX} are allowed")

description = json.loads((root / "static/openapi.json").read_text())
for operation in (operation for path in description["paths"].values() for operation in path.values()):
    operation["responses"] = {status: response for status, response in operation["responses"].items() if status.startswith("2")}
events = description["paths"]["/v1/apps/{app}/events"]["get"]
events["parameters"] = [parameter for parameter in events["parameters"] if parameter["name"] != "after"]
del events["responses"]["200"]["content"]["application/x-ndjson"]
*_, access = events["description"].split("\n\n")
events["summary"] = "Lists events, the newest first."
events["description"] = f"`bellwire.stream_events` returns the events after a cursor.\n\n{access}"
shutil.rmtree(rest, ignore_errors=True)
with TemporaryDirectory() as temporary:
    source, config = Path(temporary, "openapi.json"), Path(temporary, "config.yaml")
    source.write_text(json.dumps(description))
    config.write_text("package_name_override: rest\npost_hooks: []\n")
    generate = ["generate", "--path", source, "--config", config, "--meta", "none", "--output-path", rest]
    generated = subprocess.run([sys.executable, "-m", "openapi_python_client", *generate], capture_output=True, text=True)
    if generated.returncode:
        sys.exit(generated.stdout + generated.stderr)

for name in ("LICENSE-MIT", "LICENSE-APACHE"):
    shutil.copy(root / name, here)
for wheel in dist.glob("*.whl"):
    wheel.unlink()
build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", dist]
subprocess.run(build, cwd=here, check=True)
