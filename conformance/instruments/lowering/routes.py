"""The marks that give a case its route: `routes.both`, `routes.script`, `routes.export`."""

from __future__ import annotations

import pytest

both = pytest.mark.parametrize("route", ["script", "export"])
script = pytest.mark.parametrize("route", ["script"])
export = pytest.mark.parametrize("route", ["export"])
