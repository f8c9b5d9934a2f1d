from __future__ import annotations

from pathlib import Path

from conformance.incell.scrub import Scrubber


def test_inner_roots_win_and_links_are_resolved(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "env").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)
    scrub = Scrubber({"<project>": str(link), "<env>": str(link / "env")})
    assert scrub.text(f"{link}/a.py {real}/env/lib {link}/env") == "<project>/a.py <env>/lib <env>"


def test_a_root_is_no_prefix_of_another_word() -> None:
    scrub = Scrubber({"<project>": "/srv/project"})
    assert (
        scrub.text("/srv/projectline /srv/project.old /srv/project: /srv/project/x")
        == "/srv/projectline /srv/project.old <project>: <project>/x"
    )


def test_names_go_as_whole_words_and_ordinary_words_stay() -> None:
    scrub = Scrubber({}, ["zaphod", "heart-of-gold", "root", "test"])
    text = "zaphod@heart-of-gold: rootdir of root, zaphods test"
    assert scrub.text(text) == "<private>@<private>: rootdir of root, zaphods test"


def test_addresses_go_from_what_an_installer_prints() -> None:
    scrub = Scrubber({}, [])
    told = scrub.urls("Failed to fetch: `https://user:secret@index.example/simple/torch/` and file:///srv/wheels/x.whl")
    assert told == "Failed to fetch: `<index>` and <index>"


def test_trees_keep_their_shape_and_odd_characters_become_visible() -> None:
    scrub = Scrubber({"<home>": "/home/zaphod"})
    value = {"/home/zaphod/k": ["/home/zaphod", 1, None, {"a": "x\udc80"}]}
    assert scrub.tree(value) == {"<home>/k": ["<home>", 1, None, {"a": "x\\udc80"}]}


def test_the_root_of_the_file_system_is_no_secret() -> None:
    assert Scrubber({"<python>": "/"}).text("/usr/lib") == "/usr/lib"
