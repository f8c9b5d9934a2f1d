"""`conformance bisect`: from a case to the first release where it changed. What is known is not measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance import nightlies, plan, results, selectors
from conformance.bisectresult import Asked, Found
from conformance.cells import this_platform
from conformance.changesearch import History, Measure, search
from conformance.config import Config, Release
from conformance.errors import ConfigError, InstallError
from conformance.onecase import OneCase
from conformance.plan import Selection
from conformance.readings import Reading, observations, of_cell, readings
from conformance.results import ResultSet

Say = Callable[[str], None]


def bisect(config: Config, asked: Asked, say: Say) -> Found:
    """Find the change. Raises ConfigError for a case, release or observation that there is not."""
    folders = (config.reports / results.PUBLISHED, config.reports, config.reports / "bisect")  # of one release the last speaks
    stored = [] if asked.options.fresh else [_stored(folder) for folder in folders]
    asked = replace(asked, case=_one_case(config, asked, stored))
    platform = _platform(config, asked.device, stored)
    config = _with_nightlies(config, asked, platform)
    costs = _costs(config, asked, say)
    known = {
        version: reading
        for each in stored
        for version, reading in readings(each, asked.case, asked.observation, asked.device, platform).items()
    }
    releases = _releases(config, asked, platform, known)
    measure = costs.measure if platform == this_platform() else _elsewhere(costs, platform)
    say(f"{len([version for version in releases if version in known])} of {len(releases)} releases are known")
    found = Found(asked, asked.observation, History(releases, _within(known, releases)), costs, len(set(known) & set(releases)))
    if not _follow_observation(found, measure):
        found.history = search(releases, known, measure)
        _follow_observation(found, measure)
    _narrow_to_nightlies(found, config, platform, say)
    return found


def _stored(folder: Path) -> ResultSet:
    return results.read(folder) if folder.is_dir() else ResultSet()


def _one_case(config: Config, asked: Asked, stored: Iterable[ResultSet]) -> str:
    """The id of the one case that is meant, by results, or as it stands where its file is there."""
    ids = {record["case"] for each in stored for cell in each.judged() for record in cell.records}
    fitting = sorted(selectors.chosen([asked.case], ids))
    if len(fitting) > 1:
        raise ConfigError(f"{asked.case!r} fits {len(fitting)} cases: {', '.join(fitting[:8])}; name one of them")
    if not fitting:
        plan.case_files(config, _selection(asked))
    return fitting[0] if fitting else asked.case


def _selection(asked: Asked) -> Selection:
    subjects = (asked.subject,) if asked.subject else ()
    return Selection(devices=(asked.device,), cases=(asked.case,), depth=asked.depth, subjects=subjects)


def _costs(config: Config, asked: Asked, say: Say) -> OneCase:
    own = replace(config, reports=config.reports / "bisect")
    return OneCase(own, _selection(asked), asked.options, asked.observation, asked.keep_environments, say)


def _platform(config: Config, device: str, stored: Iterable[ResultSet]) -> str:
    """This platform, where cells of the device are planned or stored; else the one that results come from."""
    here = this_platform()
    there = sorted({cell.cell.platform for each in stored for cell in each.judged() if cell.cell.device == device})
    planned = any((target.device, target.platform) == (device, here) for target in config.targets)
    return here if planned or here in there or not there else there[0]


def _elsewhere(costs: OneCase, platform: str) -> Measure:
    def refuse(version: Version) -> None:
        costs.failed[version] = f"can be measured on {platform} alone"

    return refuse


def _releases(config: Config, asked: Asked, platform: str, known: Iterable[Version]) -> list[Version]:
    """The releases that are planned for the device there, and those that are known, between the two that were named."""
    targets = [target for target in config.targets if (target.device, target.platform) == (asked.device, platform)]
    planned = {
        Version(release)
        for release in config.releases
        for target in targets
        if SpecifierSet(target.releases, prereleases=True).contains(release)
    }
    every = sorted(planned.union(known))
    if not every:
        raise ConfigError(f"--device {asked.device}: no target for it on {platform}, and no results of it")
    ends = [every[-1] if end == "nightly" else _release(end, every) for end in asked.between]
    return [version for version in every if not ends or min(ends) <= version <= max(ends)]


def _release(text: str, every: list[Version]) -> Version:
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ConfigError(f"--between {text!r} is no release, as 2.4.1") from error
    if version not in every:
        raise ConfigError(f"--between {text}: not planned here{selectors.close_matches(text, [str(each) for each in every])}")
    return version


def _with_nightlies(config: Config, asked: Asked, platform: str) -> Config:
    """The configuration with every nightly that is newer than all releases, where one end is `nightly`."""
    if "nightly" not in asked.between:
        return config
    newest = max(config.releases, key=Version)
    found = nightlies.between(config, asked.device, platform, Version(newest), None, config.releases[newest])
    if not found:
        raise ConfigError(f"--between nightly: {nightlies.index_of(config, asked.device)} has none after {newest} for this platform")
    return _extended(config, found)


def _extended(config: Config, found: dict[str, Release]) -> Config:
    return replace(config, releases={**config.releases, **found})


def _within(known: Mapping[Version, Reading], releases: Iterable[Version]) -> dict[Version, Reading]:
    return {version: reading for version, reading in sorted(known.items()) if version in releases}


def _follow_observation(found: Found, measure: Measure) -> bool:
    """Where the verdict is the same wherever it is known, search for the change of what the case observes, if one thing of it changes."""
    known, history = found.history.known, found.history
    names = observations(known.values())
    if found.observation:
        if known and found.observation not in names:
            hint = selectors.close_matches(found.observation, names)
            raise ConfigError(f"--observation {found.observation!r}: {found.asked.case} observes no such thing{hint}")
        return False
    if history.changes:
        return False
    changing = [name for name in names if len({reading.value for reading in _as_observed(found, name).values()}) > 1]
    if len(changing) != 1:
        told = f"the verdict never changes; these do, ask by --observation: {', '.join(changing)}"
        found.notes = [told] if changing else []
        return False
    found.observation = found.costs.observation = changing[0]
    again = search(history.releases, _as_observed(found, changing[0]), measure)
    again.measured = [*history.measured, *again.measured]
    found.history = again
    return True


def _as_observed(found: Found, name: str) -> dict[Version, Reading]:
    """What is known, read as the class of an observation."""
    read = {version: of_cell(reading.cell, found.asked.case, name) for version, reading in found.history.known.items()}
    return {version: reading for version, reading in read.items() if reading is not None}


def _narrow_to_nightlies(found: Found, config: Config, platform: str, say: Say) -> None:
    """Search the nightlies between both neighbours, where the index still has some."""
    before, after = found.history.before, found.history.after
    if before is None or after is None or found.history.between or platform != this_platform():
        return
    like = config.releases.get(str(after.version))
    if like is None or like.index_url or not found.history.measured:
        return
    try:
        more = nightlies.between(config, found.asked.device, platform, before.version, after.version, like)
    except InstallError as error:
        found.notes.append(f"nightlies: {error}")
        return
    if not more:
        found.notes.append(f"nightlies: the index has none between {before.version} and {after.version}; it keeps about two months")
        return
    say(f"{len(more)} nightlies between {before.version} and {after.version}")
    found.costs.config = replace(_extended(config, more), reports=found.costs.config.reports)
    measured = found.history.measured
    stretch = [before.version, *sorted(map(Version, more)), after.version]
    found.history = search(stretch, {before.version: before, after.version: after}, found.costs.measure)
    found.history.measured = [*measured, *found.history.measured]
