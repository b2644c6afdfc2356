"""Builds the wheel that the server serves: generates `bellwire.rest` from static/openapi.json, and packs all into clients/dist.

The generated functions have only the types of successful responses, because the client raises all others as `ProblemError`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

here = Path(__file__).resolve().parent
root, dist, rest = here.parents[1], here.parent / "dist", here / "src/bellwire/rest"

description = json.loads((root / "static/openapi.json").read_text())
for operation in (operation for path in description["paths"].values() for operation in path.values()):
    operation["responses"] = {status: response for status, response in operation["responses"].items() if status.startswith("2")}
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
