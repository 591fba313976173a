"""Makes the three weather files of the demo, always the same ones: `python examples/data/make_data.py`.

The days of 2024 at three places that do not exist, and the dirt that real exports have:

- harbour.csv: days that were sent twice, and values that were not sent.
- valley.csv:  a week without rows, and -999 where a sensor failed.
- ridge.csv:   a new logger from 9 August on, which writes degrees Fahrenheit and inches into the same columns.

`true_days` is what the weather was; the tests hold what the demo finds against it.
"""

import csv
import datetime as dt
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

SEED = 2024
FIRST_DAY = dt.date(2024, 1, 1)
DAYS = 366
NEW_LOGGER_FROM = dt.date(2024, 8, 9)
GAP = range(154, 161)
"""Days of the year 2024 (counted from 0) without rows in valley.csv: 3 to 9 June."""
FAILED = "-999.0"


@dataclass(frozen=True, kw_only=True)
class Climate:
    """What a place is like."""

    mean: float
    """Of the year, in degrees Celsius."""
    swing: float
    """Between the mean of the year and that of the warmest day, in degrees Celsius."""
    wet_days: float
    """The share of days with rain."""
    rain_mm: float
    """On a wet day, on average."""
    wind_ms: float
    """On average, in metres a second."""


CLIMATES = {
    "harbour": Climate(mean=10.6, swing=6.8, wet_days=0.46, rain_mm=4.4, wind_ms=5.6),
    "valley": Climate(mean=9.8, swing=10.9, wet_days=0.36, rain_mm=5.1, wind_ms=2.3),
    "ridge": Climate(mean=4.1, swing=8.3, wet_days=0.52, rain_mm=7.6, wind_ms=8.9),
}


@dataclass(frozen=True, kw_only=True)
class Day:
    """One row; the numbers are degrees Celsius, millimetres, metres a second."""

    date: dt.date
    temp: float
    rain: float
    wind: float


def true_days(place: str) -> list[Day]:
    """The weather of a place, without dirt."""
    climate, chance = CLIMATES[place], random.Random(f"{SEED} {place}")
    days, drift = [], 0.0
    for number in range(DAYS):
        season = -math.cos(2 * math.pi * (number - 20) / DAYS)
        drift = 0.75 * drift + chance.gauss(0, 1.6)  # warm and cold spells last for days
        wet = chance.random() < climate.wet_days
        days.append(
            Day(
                date=FIRST_DAY + dt.timedelta(days=number),
                temp=round(climate.mean + climate.swing * season + drift, 1),
                rain=round(chance.expovariate(1 / climate.rain_mm), 1) if wet else 0.0,
                wind=round(climate.wind_ms * chance.weibullvariate(1.1, 2.2), 1),
            )
        )
    return days


def exported_rows(place: str) -> Iterator[dict[str, str]]:
    """The same as its station exports it."""
    chance = random.Random(f"{SEED} {place} dirt")
    spoiled, repeated = set(chance.sample(range(DAYS), 11)), set(chance.sample(range(274, 305), 8))
    for number, day in enumerate(true_days(place)):
        new_logger = place == "ridge" and day.date >= NEW_LOGGER_FROM
        row = _row(_imperial(day), "HX-90") if new_logger else _row(day, "TH-2")
        if number in spoiled:
            row[chance.choice(("temp", "rain", "wind"))] = FAILED if place == "valley" else ""
        if not (place == "valley" and number in GAP):
            yield row
        if place == "harbour" and number in repeated:
            yield row


def _imperial(day: Day) -> Day:
    return replace(day, temp=round(day.temp * 9 / 5 + 32, 1), rain=round(day.rain / 25.4, 2))


def _row(day: Day, logger: str) -> dict[str, str]:
    return {
        "date": day.date.isoformat(),
        "logger": logger,
        "temp": str(day.temp),
        "rain": str(day.rain),
        "wind": str(day.wind),
    }


def main(folder: Path) -> None:
    """Write the files."""
    for place in CLIMATES:
        with (folder / f"{place}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["date", "logger", "temp", "rain", "wind"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(exported_rows(place))


if __name__ == "__main__":
    main(Path(__file__).parent)
