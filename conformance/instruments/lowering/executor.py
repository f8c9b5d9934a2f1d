"""A process that runs compiled programs, each in a fork of its own: what a wrong program does to memory stays there.

Run as `python executor.py`: it imports numpy and a backend once, then takes requests on its standard input, a JSON line each, and answers
each with a line: `code` (as subprocess has it), `late`. It needs neither torch nor this package.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

_POLL_S = 0.005


def run_iree(program: str, inputs: str, outputs: str) -> None:
    """Run a module that iree-compile made on each variation of the inputs, as `reference.run` does."""
    import iree.runtime as runtime
    import numpy as np
    import reference  # type: ignore[import-not-found]  # beside this file, which is a program

    print("load", flush=True)
    config = runtime.Config("local-sync")
    module = runtime.VmModule.copy_buffer(config.vm_instance, Path(program).read_bytes())
    main = runtime.load_vm_module(module, config)["main"]
    given = np.load(inputs)
    weights = reference.arrays_of(given, "weights")
    answers = {}
    for name in dict.fromkeys(name.rpartition(".")[0] for name in given.files):
        if name != "weights":
            print(f"run {name}", flush=True)
            try:
                answer = main(*weights, *reference.arrays_of(given, name))
            except (RuntimeError, ValueError) as error:
                print(f"refused {name}: {' '.join(str(error).split())}", flush=True)
                continue
            for number, each in enumerate(answer if isinstance(answer, (list, tuple)) else [answer]):
                answers[f"{name}.{number}"] = each.to_host()
    np.savez(outputs, **answers)


def serve() -> None:
    """Answer requests until the standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        _warm(request["backend"])
        print(json.dumps(_forked(request)), flush=True)


def _warm(backend: str) -> None:
    """Import here what every fork needs."""
    if backend == "iree":
        import iree.runtime  # noqa: F401
    else:
        import reference  # noqa: F401
        import torch_mlir.dialects.torch
        import torch_mlir.execution_engine
        import torch_mlir.passmanager  # noqa: F401


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    child = os.fork()
    if not child:
        _become(request)
    ends_at, late = time.monotonic() + request["patience"], False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return {"code": -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), "late": late}
        if time.monotonic() > ends_at and not late:
            late = True
            os.kill(child, signal.SIGKILL)
        time.sleep(_POLL_S)


def _become(request: dict[str, Any]) -> None:
    """The fork: both streams into the request's log, its memory limited, and never back into the loop."""
    code = 1
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(request["seconds"]), int(request["seconds"]) + 1))
        if sys.platform.startswith("linux"):
            size = request["megabytes"] * 1_000_000
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        files = (request["program"], request["inputs"], request["outputs"])
        if request["backend"] == "iree":
            run_iree(*files)
        else:
            import reference

            reference.run(*files, request["results"])
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
