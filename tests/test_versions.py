"""Every file that is written says by which version of the tool, and in which schema, so that it can be read years later."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from builders import cell, grid, record, tree

from conformance import __version__, configfile
from conformance.gate import judge
from conformance.ledger import Ledger
from conformance.plan import Selection, make
from conformance.report import build

#: shields.io refuses keys that it does not know, and a table of commas has no place for any; matrix.json beside them says it.
WITHOUT = {"badge.json", "matrix.csv"}


def test_every_file_of_a_report_says_its_version(tmp_path: Path) -> None:
    result = grid({"init.a": {"2.4.1": "pass", "2.8.0": "wrong"}})
    build(result, [], judge(result, [], date(2026, 11, 30)), tmp_path)
    files = {name: content.decode() for name, content in tree(tmp_path).items() if not name.startswith("site/")}
    assert len(files) >= 8
    assert {name for name, content in files.items() if __version__ not in content or "schema" not in content} == WITHOUT
    assert __version__ in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_the_files_of_a_cell_and_the_plan_say_it(tmp_path: Path) -> None:
    ledger = Ledger(str(cell("2.4.1")), tmp_path / "cell", tmp_path / "work", [])
    ledger.file_records = [record("2.4.1", "init.a")]
    ledger.write({})
    collected = json.loads((tmp_path / "cell" / "collected.json").read_text(encoding="utf-8"))
    assert (collected["schema"], collected["tool"]) == (1, __version__)
    assert json.loads((tmp_path / "cell" / "records.jsonl").read_text(encoding="utf-8"))["schema"] == 1
    plan = make(configfile.load(tmp_path), Selection(torch="2.4.1", devices=("cpu",))).as_json()
    assert (plan["schema"], plan["tool"]) == (1, __version__)
