"""``dtrees demo``: a made-up table for someone without data at hand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dtrees.atomic_file import atomic_file
from dtrees.cli.commands import fit
from dtrees.cli.data.output import check_destinations, check_new, check_suffix
from dtrees.cli.terminal.display import Display

TARGET = "rent"


def flats(n_rows: int, seed: int) -> pd.DataFrame:
    """Return made-up flats and their monthly rents.

    The rent depends on numbers and on text, on some of them only together; two columns have gaps, and there is noise, so that no model
    can reach an R2 of 1.

    >>> flats(3, seed=0).columns.tolist()
    ['area', 'rooms', 'floor', 'lift', 'built', 'centre_km', 'district', 'heating', 'rent']
    """
    random = np.random.default_rng(seed)
    area = random.gamma(8, 9, n_rows).clip(18, 240).round(1)
    rooms = (area / 28 + random.normal(0, 0.6, n_rows)).round().clip(1, 8)
    floor = random.integers(0, 12, n_rows)
    lift = random.random(n_rows) < floor / 12
    built = random.choice([1905, 1930, 1955, 1972, 1990, 2008, 2020], n_rows) + random.integers(-8, 5, n_rows)
    centre_km = random.gamma(2, 2.2, n_rows).round(2)
    district = random.choice(["Harbour", "Hill", "Mill", "Old Town", "Park", "Station"], n_rows)
    heating = random.choice(["district heat", "gas", "heat pump", "oil"], n_rows, p=[0.3, 0.4, 0.2, 0.1])
    per_metre = 9 + 7 * np.exp(-centre_km / 3) + 2.5 * (built > 2000) + 1.5 * (built < 1935)
    per_metre += pd.Series(district).map({"Harbour": 2, "Hill": 1, "Mill": -1, "Old Town": 3, "Park": 2.5, "Station": -2}).to_numpy()
    per_metre -= 1.2 * (heating == "oil") + 0.25 * floor * ~lift
    rent = (per_metre * area * (1 + random.normal(0, 0.07, n_rows)) + 60 * rooms).round(2)
    return pd.DataFrame(
        {
            "area": area,
            "rooms": rooms,
            "floor": floor,
            "lift": lift,
            "built": np.where(random.random(n_rows) < 0.05, np.nan, built),
            "centre_km": centre_km,
            "district": district,
            "heating": pd.Series(heating).where(random.random(n_rows) >= 0.1),
            TARGET: rent,
        }
    )


def run(rows: int, data: str | None, display: Display | None = None, **options: Any) -> None:
    """Carry out the command: ``rows`` to make up, the file to keep them in, and options of ``dtrees fit``."""
    display = display or Display(as_json=options.get("as_json", False))
    with tempfile.TemporaryDirectory(prefix="dtrees-demo-") as folder:
        path = data or str(Path(folder) / "flats.csv")
        check_suffix("--data", path, ("", ".csv", ".txt"), "a CSV file")
        check_new("--data", path)
        check_destinations({"--data": path, "--output": options["output"], "--report": options["report"]}, [])
        with atomic_file(path) as file:
            flats(rows, options["seed"]).to_csv(file, index=False)
        display.note(f"Made up {rows:,} flats; the rent is to be predicted from the other columns.")
        fit.run(fit.FitOptions(data=path, target=TARGET, **options), display)
    table = f"{data} --target {TARGET}" if data else "DATA --target COLUMN"
    display.result(f"Next: dtrees fit {table} --model forest --output model.dtrees")
