"""The cells that the demo's model runs; `<names>` are filled in by `demo_script.py`. One kernel's cells share their variables."""

LIST_FILES = """
from pathlib import Path

for path in sorted(Path(<folder>).glob("*.csv")):
    header, *rows = path.read_text().splitlines()
    print(f"{path.name}: {len(rows)} rows of {header}")
"""

LOOK = """
import csv, statistics
from pathlib import Path

GONE = ("", "-999.0")
rows = list(csv.DictReader(Path(<path>).read_text().splitlines()))
print(f"{len(rows)} rows, {len({row['date'] for row in rows})} days from {rows[0]['date']} to {rows[-1]['date']}")
for column in ("temp", "rain", "wind"):
    values = [row[column] for row in rows]
    print(f"{column}: {values.count('')} empty, {values.count('-999.0')} at -999")
for logger in sorted({row["logger"] for row in rows}):
    temp, rain = ([float(row[column]) for row in rows if row["logger"] == logger and row[column] not in GONE] for column in ("temp", "rain"))
    print(f"logger {logger}: temp from {min(temp)} to {max(temp)}, rain up to {max(rain)}")
"""

CONVERT = """
import asyncio

temp, rain = await asyncio.gather(
    agent.mcp.units.conversion(from_unit="degF", to_unit="degC"),
    agent.mcp.units.conversion(from_unit="inch", to_unit="mm"),
)
for row in rows:
    for column, rule in (("temp", temp), ("rain", rain)):
        if row["logger"] in <loggers> and row[column] not in GONE:
            row[column] = round(float(row[column]) * rule["factor"] + rule["offset"], 1)
"""

CLEAN = """
COLUMNS = ("date", "temp", "rain", "wind")
days = {row["date"]: {column: "" if row[column] in GONE else row[column] for column in COLUMNS} for row in rows}
with Path(<file>).open("w", newline="") as file:
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    writer.writerows(days.values())

temp = {date: float(day["temp"]) for date, day in days.items() if day["temp"] != ""}
rain = sum(float(day["rain"] or 0) for day in days.values())
print(f"{len(days)} days, {statistics.mean(temp.values()):.1f} °C on average, {max(temp.values()):.1f} °C at most, {rain:.0f} mm of rain")
"""

PICTURE = """
import csv, statistics
from pathlib import Path
import matplotlib.pyplot as plt

stations, months = <stations>, "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
days = {station: list(csv.DictReader(Path(f"{station}.csv").read_text().splitlines())) for station in stations}

def by_month(station, column, combine):
    dated = [(int(day["date"][5:7]), float(day[column])) for day in days[station] if day[column]]
    return [combine([value for month, value in dated if month == number]) for number in range(1, 13)]

figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
for number, station in enumerate(stations):
    top.plot(months, by_month(station, "temp", statistics.mean), marker="o", label=station)
    bottom.bar([place + 0.25 * (number - 1) for place in range(12)], by_month(station, "rain", sum), 0.22)
top.set(ylabel="temperature, °C")
bottom.set(ylabel="rain, mm")
top.legend()
figure.savefig("weather.png", dpi=110)
plt.show()
"""

REPORT = """
faults = <faults>
lines = ["# Weather stations", "", "| station | days | mean °C | rain mm |", "| --- | ---: | ---: | ---: |"]
for station in stations:
    mean = statistics.mean(float(day["temp"]) for day in days[station] if day["temp"])
    lines.append(f"| {station} | {len(days[station])} | {mean:.1f} | {sum(by_month(station, 'rain', sum)):.0f} |")
lines += ["", "![Temperature and rain by month](weather.png)", ""]
for station, text in faults.items():
    lines += [f"## Faults in {station}.csv", "", text, ""]
Path("report.md").write_text("\\n".join(lines), encoding="utf-8")
print("\\n".join(lines))
"""
