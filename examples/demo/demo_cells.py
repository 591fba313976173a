"""The cells that the demo's model runs. `<names>` are filled in by `demo_script.py`. An agent's cells share variables."""

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
dates = sorted({row["date"] for row in rows})
print(f"{len(rows)} rows, {len(dates)} days from {dates[0]} to {dates[-1]}")
for column in ("temp", "rain", "wind"):
    values = [row[column] for row in rows]
    print(f"{column}: {values.count('')} empty, {values.count('-999.0')} at -999")
for logger in sorted({row["logger"] for row in rows}):
    mine = [row for row in rows if row["logger"] == logger]
    temp = [float(row["temp"]) for row in mine if row["temp"] not in GONE]
    rain = [float(row["rain"]) for row in mine if row["rain"] not in GONE]
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
days = {}
for row in rows:
    days[row["date"]] = {column: "" if row[column] in GONE else row[column] for column in COLUMNS}
with Path(<file>).open("w", newline="") as file:
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    writer.writerows(days.values())

temp = [float(day["temp"]) for day in days.values() if day["temp"] != ""]
rain = [float(day["rain"]) for day in days.values() if day["rain"] != ""]
print(f"{len(days)} days, {statistics.mean(temp):.1f} °C on average,",
      f"{max(temp):.1f} °C at most, {sum(rain):.0f} mm of rain")
"""

PICTURE = """
import csv, statistics
from pathlib import Path
import matplotlib.pyplot as plt

months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
days = {}
for station in <stations>:
    days[station] = list(csv.DictReader(Path(f"{station}.csv").read_text().splitlines()))

def monthly(station, column, combine):
    dated = [(int(day["date"][5:7]), float(day[column])) for day in days[station] if day[column]]
    by_month = [[value for month, value in dated if month == number] for number in range(1, 13)]
    return [combine(values) if values else float("nan") for values in by_month]

figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
for number, station in enumerate(days):
    top.plot(months, monthly(station, "temp", statistics.mean), marker="o", label=station)
    places = [place + 0.25 * (number - 1) for place in range(12)]
    bottom.bar(places, monthly(station, "rain", sum), width=0.22)
top.set(ylabel="temperature, °C")
bottom.set(ylabel="rain, mm")
top.legend()
figure.savefig("weather.png", dpi=110)
plt.show()
"""

REPORT = """
faults = <faults>
lines = ["# Weather stations", "", "| station | days | mean °C | rain mm |", "| --- | ---: | ---: | ---: |"]
for station in days:
    temp = statistics.mean(float(day["temp"]) for day in days[station] if day["temp"])
    rain = sum(float(day["rain"]) for day in days[station] if day["rain"])
    lines.append(f"| {station} | {len(days[station])} | {temp:.1f} | {rain:.0f} |")
lines += ["", "![Temperature and rain by month](weather.png)", ""]
for station, text in faults.items():
    lines += [f"## Faults in {station}.csv", "", text, ""]
Path("report.md").write_text("\\n".join(lines), encoding="utf-8")
print("\\n".join(lines))
"""
