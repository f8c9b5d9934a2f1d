"""The text of an issue for the project in which a case went wrong: what a maintainer asks first, from the records."""

from __future__ import annotations

from conformance.artifacts import Record
from conformance.columns import Column
from conformance.plaintext import one_line, visible
from conformance.reasons import reason_of
from conformance.report.scripts import Script
from conformance.report.sources import CaseSource
from conformance.report.timeline import Timeline
from conformance.report.view import Row

_OUTPUT = 2000
#: Characters of a script that an issue holds; a longer one is to be attached.
_SCRIPT = 20_000


def issue(column: Column, row: Row, record: Record, lines: list[Timeline], source: CaseSource | None, script: Script | None) -> str:
    """Markdown to paste: the property, where it holds and where not, what came out, the code, and the environment.

    The code is the script that stands on its own, where there is one that is not too long, else the case alone.
    """
    title = row.title or (source.title if source else "") or row.case
    told = [f"**{one_line(title, 200)}**", "", f"On torch {column.cell.torch} ({column.cell.device}): {_outcome(record)}", ""]
    told += ["| device | releases | result |", "|---|---|---|"]
    told += [f"| {line.group.device} | {span.releases} | {span.verdict} |" for line in lines for span in line.spans if span.record]
    if record["output_tail"]:
        told += ["", *_block(str(record["output_tail"])[-_OUTPUT:])]
    if script is not None and len(script.text) <= _SCRIPT:
        told += ["", f"A file that shows it, run as `{script.command}`:", ""]
        told += ["<details><summary>The file</summary>", "", *_block(script.text, "python"), "", "</details>"]
    elif source is not None:
        told += ["", f"The check, from `{source.file}`:", "", *_block(source.code, "python")]
        if source.right is not None and source.right.code and source.right.code != source.code:
            told += ["", *_block(source.right.code, "python")]
        if script is not None:
            told += ["", f"The attached file shows it, run as `{script.command}`"]
    return "\n".join([*told, "", *_environment(column)])


def _outcome(record: Record) -> str:
    reason = one_line(reason_of(record), 400)
    what = {"wrong": "it runs and gives a different answer, without an error", "crash": "the process dies", "timeout": "it does not end"}
    return f"{what.get(record['verdict'], record['verdict'])}{f' (`{reason}`)' if reason else ''}."


def _block(text: str, language: str = "") -> list[str]:
    """A fenced block that `text` cannot end."""
    shown = visible(text)
    fence = "```"
    while fence in shown:
        fence += "`"
    return [fence + language, shown, fence]


def _environment(column: Column) -> list[str]:
    fact = column.result.fact
    facts = {
        "torch": f"{fact('torch', 'version')} {fact('torch', 'git_version')}",
        "Python": fact("python", "version"),
        "OS": fact("platform", "os"),
        "CPU": f"{fact('cpu', 'model')} {fact('cpu', 'capability')}",
        "device": fact("device", "name"),
    }
    return ["Environment:", *(f"- {name}: {one_line(value, 200)}" for name, value in facts.items() if value.strip())]
