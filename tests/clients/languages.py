"""Runs the commands of docs/clients.md that generate clients for Go, PHP, Ruby and Java, and compiles what they wrote.

Usage: python3 languages.py OPENAPI_JSON. Each language gets a line: `compiled`, or `skipped` with the missing tool. The exit status is 1
if a command fails, if generated code does not compile, or if the guide has no command for a language.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

here = Path(__file__).resolve().parent
guide = here.parents[1] / "docs/clients.md"
DEBIAN_GO = Path("/usr/share/gocode")  # of golang-gopkg-validator.v2-dev
PARSE_RUBY = "ARGV.each { |file| RubyVM::InstructionSequence.compile_file(file) }"  # `ruby -c` checks only its first file


class Failed(Exception):
    """A command ended with an error; the message is its output."""


class Skipped(Exception):
    """A tool is missing; the message names it."""


def need(*tools: str) -> None:
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise Skipped(f"{' and '.join(missing)} missing")


def run(*command: str | Path, directory: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if ended.returncode:
        raise Failed("\n".join(ended.stdout.splitlines()[-60:]) or f"exit status {ended.returncode}")


def sources(directory: Path, ending: str) -> list[Path]:
    found = sorted(directory.rglob(f"*.{ending}"))
    if not found:
        raise Failed(f"no file ends in .{ending}")
    return found


def generator() -> Path:
    return Path(str(files("openapi_generator_cli"))) / "openapi-generator.jar"


def compile_go(client: Path) -> None:
    need("go")
    if (DEBIAN_GO / "src/gopkg.in/validator.v2").is_dir():
        path = client.parent / "gopath"
        shutil.copytree(client, path / "src/bellwire", ignore=shutil.ignore_patterns("go.mod"))
        run("go", "build", ".", directory=path / "src/bellwire", GO111MODULE="off", GOPATH=f"{path}:{DEBIAN_GO}")
        return
    try:
        run("go", "mod", "download", directory=client)
    except Failed as failure:
        raise Skipped(f"gopkg.in/validator.v2 missing, and cannot be fetched: {str(failure).splitlines()[-1]}") from failure
    run("go", "build", ".", directory=client)


def compile_php(client: Path) -> None:
    need("php")
    for source in sources(client, "php"):
        run("php", "-l", source, directory=client)


def compile_ruby(client: Path) -> None:
    need("ruby")
    run("ruby", "-e", PARSE_RUBY, *sources(client, "rb"), directory=client)


def compile_java(client: Path) -> None:
    """Compiles against the generator, which contains Jackson, and the two small libraries in `java`."""
    need("javac")
    classes = client.parent / "classes"
    options: list[str | Path] = ["-proc:none", "-nowarn", "-d", classes, "-classpath", generator()]
    run("javac", *options, *sources(here / "java", "java"), *sources(client / "src/main", "java"), directory=client)


COMPILERS = {"go": compile_go, "php": compile_php, "ruby": compile_ruby, "java": compile_java}


def commands() -> dict[str, list[str]]:
    """Returns the arguments of the guide's commands by language."""
    blocks = re.findall(r"^```sh\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("openapi-generator-cli ")]
    return {arguments[arguments.index("-g") + 1]: arguments for arguments in found}


def check(language: str, arguments: list[str], directory: Path) -> str:
    """Generates and compiles one client, and returns the result for its line."""
    try:
        need("java")
        run("java", "-jar", generator(), *arguments, directory=directory)
        COMPILERS[language](directory / arguments[arguments.index("-o") + 1])
    except Skipped as skipped:
        return f"skipped, {skipped}"
    except Failed as failed:
        return f"FAILED\n{failed}"
    return "compiled"


def main(document: Path) -> int:
    results = {}
    by_language = commands()
    with TemporaryDirectory() as temporary:
        shutil.copy(document, Path(temporary, "openapi.json"))
        for language in COMPILERS:
            arguments = by_language.get(language)
            results[language] = check(language, arguments, Path(temporary)) if arguments else f"FAILED\n{guide} has no command"
            print(f"{language}: {results[language]}", flush=True)
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: languages.py OPENAPI_JSON")
    sys.exit(main(Path(sys.argv[1])))
