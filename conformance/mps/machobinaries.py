"""The registrations that a macOS build of torch holds in its machine code: what no source file in a wheel tells.

A kernel that PyTorch registers by hand (MPSFallback.mm: ops that always run on the CPU, and stubs that raise) is neither in
native_functions.yaml nor in Python. The library is not stripped: the function that registers a block of operators is found by its
symbol, and its arm64 code loads the address of each operator's name and of its kernel (an `adrp` and an `add` each).
"""

from __future__ import annotations

import bisect
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Where a wheel keeps the library.
MEMBER = "torch/lib/libtorch_cpu.dylib"
_SEGMENT, _SYMBOLS = 0x19, 0x2
_OPERATOR = re.compile(rb"(aten::)?[A-Za-z_]\w*(\.\w+)?")


@dataclass(frozen=True)
class Registered:
    """One operator that the library registers, and the symbols of functions that its registration refers to."""

    name: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class _Section:
    address: int
    size: int
    offset: int

    def at(self, address: int) -> int:
        """The file offset of an address of this section; -1 for any other."""
        inside = address - self.address
        return self.offset + inside if 0 <= inside < self.size else -1


class Library:
    """A 64-bit arm64 Mach-O library on disk."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._sections: dict[str, _Section] = {}
        self._names: dict[int, list[str]] = {}
        self._read()
        self._starts = sorted(self._names)

    def close(self) -> None:
        """Let the file go."""
        self._data.close()

    def _read(self) -> None:
        magic, _, _, _, count, _, _, _ = struct.unpack_from("<8I", self._data, 0)
        if magic != 0xFEEDFACF:
            raise ValueError(f"no 64-bit Mach-O library: it begins with {magic:#x}")
        at = 32
        for _ in range(count):
            kind, size = struct.unpack_from("<2I", self._data, at)
            if kind == _SEGMENT:
                self._read_sections(at)
            elif kind == _SYMBOLS:
                self._read_symbols(*struct.unpack_from("<4I", self._data, at + 8))
            at += size

    def _read_sections(self, at: int) -> None:
        (count,) = struct.unpack_from("<I", self._data, at + 64)
        for number in range(count):
            name, _, address, size, offset = struct.unpack_from("<16s16sQQI", self._data, at + 72 + 80 * number)
            self._sections.setdefault(name.rstrip(b"\0").decode(), _Section(address, size, offset))

    def _read_symbols(self, table: int, count: int, strings: int, size: int) -> None:
        names = self._data[strings : strings + size]
        for index, kind, _, _, value in struct.iter_unpack("<IBBHQ", self._data[table : table + 16 * count]):
            if value and not kind & 0xE0:  # no debugging symbols
                self._names.setdefault(value, []).append(names[index : names.index(b"\0", index)].decode("utf-8", "replace"))

    def registered(self, namespace: str = "aten", key: str = "MPS") -> list[Registered]:
        """The operators that the library registers for `key`, in the order of its code."""
        wanted = re.compile(rf"TORCH_LIBRARY_IMPL_init_{namespace}_{key}_\d+")
        found: list[Registered] = []
        for start in self._starts:
            if any(wanted.search(name) for name in self._names[start]):
                found += self._registrations(start)
        return found

    def _registrations(self, start: int) -> Iterator[Registered]:
        """A registration loads its kernel first, then the operator's name."""
        kernels: list[str] = []
        for address in self._addresses(start):
            name = self._operator(address)
            if name:
                yield Registered(name, tuple(kernels))
                kernels = []
            else:
                kernels += self._names.get(address, [])

    def _operator(self, address: int) -> str:
        """The operator's name at an address: a whole literal, so the byte before it ends another."""
        at = self._sections["__cstring"].at(address)
        if at < 0 or self._data[at - 1]:
            return ""
        text = self._data[at : self._data.find(b"\0", at)]
        return text.decode().removeprefix("aten::") if _OPERATOR.fullmatch(text) else ""

    def _addresses(self, start: int) -> Iterator[int]:
        """What the function at `start` loads the addresses of, in order."""
        end = self._starts[bisect.bisect_right(self._starts, start)]
        at = self._sections["__text"].at(start)
        pages: dict[int, int] = {}
        for (offset,), pc in zip(struct.iter_unpack("<I", self._data[at : at + end - start]), range(start, end, 4)):
            if offset & 0x9F000000 == 0x90000000:  # adrp: the page of an address
                high, low = offset >> 5 & 0x7FFFF, offset >> 29 & 3
                pages[offset & 31] = (pc & ~0xFFF) + (((high << 2 | low) ^ 0x100000) - 0x100000 << 12)
            elif offset & 0xFF800000 == 0x91000000 and offset >> 5 & 31 in pages:  # add: the rest of it
                yield pages[offset >> 5 & 31] + ((offset >> 10 & 0xFFF) << (12 if offset >> 22 & 1 else 0))
