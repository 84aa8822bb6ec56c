#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turns bench.sh's results.jsonl into table.md, data files and plots (gnuplot)."""
import json
import os
import re
import subprocess
import sys


def load(path):
    """label -> list of results, in order."""
    results = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            entry = json.loads(line)
            results.setdefault(entry["label"], []).append(entry["result"])
    return results


def get(result, *path):
    for key in path:
        if not isinstance(result, dict) or result.get(key) is None:
            return None
        result = result[key]
    return result


def first(results, label, *path):
    return get(results[label][0], *path) if label in results else None


# --- the table ---

def wanted_rows(results):
    """(work, measured, unit, '>=' or '<=', wanted, note)"""

    def bulk(label, work, wanted):
        note = []
        for base in ("rows", "cma"):
            gbps = first(results, label, "baselines", base, "gbps")
            limit = first(results, label, "limit_gbps")
            if gbps and limit:
                note.append(f"{base} {gbps / limit:.2f}")
        gbps, limit = first(results, label, "gbps"), first(results, label, "limit_gbps")
        if gbps and limit:
            note.insert(0, f"{gbps:.2f} of {limit:.2f} GB/s")
        return (work, first(results, label, "ratio"), "x limit", ">=", wanted, ", ".join(note))

    yield bulk("bulk-pages", "deepseek-r1, 8192 tokens, page 64, whole pages (DCP 1 -> 1)", 1.05)
    yield bulk("bulk-one-of-8", "same, one decode rank of DCP 8", 0.80)
    yield bulk("bulk-all-8", "same, all 8 decode ranks granted", 1.05)
    yield bulk("bulk-heads-4-2", "llama-3-70b, TP 4 -> 2 head slices", 0.80)
    yield bulk("bulk-dcp-8-4", "deepseek-r1, DCP 8 -> 4", 0.80)
    one, two = first(results, "lcores-1", "gbps"), first(results, "lcores-2", "gbps")
    yield ("two copy lcores", two / one if one and two else None, "x one", ">=", 1.85,
           f"{two:.2f} against {one:.2f} GB/s" if one and two else "")

    def latency(label):
        base = first(results, label, "baselines", "memcpy", "p50_us")
        return f"memcpy alone {base:.3g} us" if base else ""

    yield ("post to \"decode sees it\", 1152 B, p50", first(results, "latency-1152", "p50_us"), "us", "<=",
           0.8, latency("latency-1152"))
    yield ("the same, p99", first(results, "latency-1152", "p99_us"), "us", "<=", 2, "")
    yield ("post to \"decode sees it\", 73,728 B, warm, p50", first(results, "latency-73728", "p50_us"),
           "us", "<=", 3.0, latency("latency-73728"))
    yield ("plan of 131,072 tokens, random pages of 64, DCP 8, one rank",
           first(results, "plan-page-64", "plan_us"), "us", "<=", 30, "")
    yield ("same, page 1", first(results, "plan-page-1", "ns_per_token"), "ns/token", "<=", 3, "")
    yield ("rooms of one page, one layer, through one dispatcher",
           first(results, "rooms", "rooms_per_s", "median"), "rooms/s", ">=", 300000, "")
    overheads = [(get(results[label][0], "engine_overhead"), label) for label in results
                 if label.startswith("bulk-") and get(results[label][0], "engine_overhead") is not None]
    worst = max(overheads, default=(None, ""))
    yield ("engine overhead: busy time of bulk lcores not in the copy kernels",
           worst[0] * 100 if worst[0] is not None else None, "%", "<=", 3, f"worst: {worst[1]}")
    share = first(results, "idle", "cpu_share")
    yield ("idle engine", share * 100 if share is not None else None, "% of a core", "<=", 2, "")
    yield ("first request after 100 ms idle, p50", first(results, "idle", "p50_us"), "us", "<=", 100,
           "max %.3g us" % first(results, "idle", "max_us") if first(results, "idle", "max_us") else "")
    peer = first(results, "abort", "peer", "p99_us")
    yield ("kvf_abort() to drained while large rooms are copied, p99", first(results, "abort", "p99_us"), "us",
           "<=", 2000, f"other side {peer:.3g} us" if peer else "")
    busy = first(results, "idle-busy", "cpu_share")
    yield ("--busy keeps spinning", busy * 100 if busy is not None else None, "% of a core", ">=", 80, "")


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write_table(results, path):
    anyone = next(iter(results.values()))[0]
    engine = next((r[0] for r in results.values() if get(r[0], "kernel")), anyone)
    lines = [
        f"Measured on {get(anyone, 'cpu')}, {get(anyone, 'cpus')} CPUs, memory pages of "
        f"{(get(engine, 'memory_page') or 0) // 1024} KiB, driver {get(engine, 'driver')} "
        f"({get(engine, 'kernel')}). Ratios are medians of per-iteration ratios to the contiguous "
        "memcpy of the same run.",
        "",
        "| work | measured | wanted | | |",
        "|---|---|---|---|---|",
    ]
    met = missed = 0
    for work, value, unit, sign, wanted, note in wanted_rows(results):
        verdict = "not run"
        if value is not None:
            good = value >= wanted if sign == ">=" else value <= wanted
            verdict = "yes" if good else "**no**"
            met += good
            missed += not good
        lines.append(f"| {work} | {number(value)} {unit} | {sign} {number(wanted)} | {verdict} | {note} |")
    wrong = sum(get(r, "mismatches") or 0 for rs in results.values() for r in rs)
    checked = sum(get(r, "mismatches") is not None for rs in results.values() for r in rs)
    lines += ["", f"{met} met, {missed} not met; {checked} results checked byte by byte, mismatches={wrong}."]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    print("\n".join(lines))


# --- the plots ---

def save(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(" ".join("nan" if v is None else f"{v:.9g}" for v in row) + "\n")


def series(results, pattern, *path, scale=1.0):
    """[(number in the label, value)] of the labels that match, sorted."""
    rows = []
    for label, rs in results.items():
        m = re.fullmatch(pattern, label)
        value = get(rs[0], *path) if m else None
        if value is not None:
            rows.append((int(m.group(1)), value * scale))
    return sorted(rows)


def pieces(results, prefix):
    """driver -> [(piece, gbps)], and the limit."""
    curves, limits = {}, []
    for label, rs in results.items():
        if not label.startswith(prefix):
            continue
        rows = [(r["piece"], r["gbps"]) for r in rs if get(r, "piece") and get(r, "gbps")]
        if rows:
            curves[label[len(prefix):]] = sorted(rows)
        limits += [r["limit_gbps"] for r in rs if get(r, "limit_gbps")]
    return curves, sorted(limits)[len(limits) // 2] if limits else None


def build_plots(results, out):
    """[(name, gnuplot commands)]"""
    plots = []

    def add(name, title, xlabel, ylabel, curves, extra=""):
        curves = [(t, rows, style) for t, rows, style in curves if rows]
        if not curves:
            return
        parts = []
        for i, (t, rows, style) in enumerate(curves):
            data = os.path.join(out, f"{name}-{i}.dat")
            save(data, rows)
            parts.append(f"'{data}' with {style} title '{t}'")
        plots.append((name, "\n".join([
            "set terminal pngcairo size 900,560 noenhanced",
            f"set output '{os.path.join(out, name)}.png'",
            f"set title '{title}'", f"set xlabel '{xlabel}'", f"set ylabel '{ylabel}'",
            "set grid", "set key left top", extra, "plot " + ", \\\n  ".join(parts)])))

    for prefix, title in (("copy-", "scattered pieces"), ("rows-", "every 8th row")):
        curves, limit = pieces(results, prefix)
        lines = [(name, rows, "linespoints") for name, rows in sorted(curves.items())]
        if lines and limit:
            span = [rows for _, rows, _ in lines]
            lo, hi = min(r[0][0] for r in span), max(r[-1][0] for r in span)
            lines.append(("contiguous memcpy", [(lo, limit), (hi, limit)], "lines dashtype 2"))
        add(f"throughput-{prefix[:-1]}", f"Throughput by piece size: {title}", "bytes of a piece", "GB/s",
            lines, "set logscale x 2\nset yrange [0:*]\nset format x '%.0f'\nset rmargin 6")
    add("latency", "Post to \"decode sees it\"", "us", "share of requests",
        [(label[8:] + " B", [(us, share) for share, us in get(rs[0], "distribution") or []], "linespoints")
         for label, rs in results.items() if label.startswith("latency-")],
        "set logscale x\nset key right bottom")
    scale = []
    for pattern, title in ((r"lcores-(\d+)", "whole pages"), (r"lcores-one-of-8-(\d+)", "one rank of DCP 8")):
        scale.append((title, series(results, pattern, "gbps"), "linespoints"))
    limit = series(results, r"lcores-(\d+)", "limit_gbps")
    scale.append(("contiguous memcpy", limit, "linespoints dashtype 2"))
    add("lcores", "Scaling by copy lcores", "lcores", "GB/s", scale, "set yrange [0:*]\nset xtics 1")
    log = "set logscale xy\nset key left top"
    add("tokens", "Cost by tokens", "tokens of the prompt", "us", [
        ("plan, page 64, DCP 8, one rank", series(results, r"plan-tokens-(\d+)", "plan_us"), "linespoints"),
        ("plan, page 1", series(results, r"plan-1-tokens-(\d+)", "plan_us"), "linespoints"),
        ("transfer, page 64, one layer", series(results, r"tokens-(\d+)", "seconds", "median", scale=1e6),
         "linespoints")], log)
    add("layers", "Cost by layers: 2048 tokens of 1152 B, page 64", "layers", "us", [
        ("transfer", series(results, r"layers-(\d+)", "seconds", "median", scale=1e6), "linespoints")], log)
    add("endpoints", "Rate by pairs of endpoints, 16 rooms in flight each", "pairs", "rooms/s", [
        ("rooms", series(results, r"endpoints-(\d+)", "rooms_per_s", "median"), "linespoints")],
        "set logscale x 2\nset yrange [0:*]")
    add("window", "Rate by rooms in flight", "rooms in flight", "rooms/s", [
        ("rooms", series(results, r"window-(\d+)", "rooms_per_s", "median"), "linespoints")],
        "set logscale x\nset yrange [0:*]")
    return plots


def main():
    args = [a for a in sys.argv[1:] if a != "--no-plots"]
    if len(args) != 2:
        sys.exit("usage: bench-report.py RESULTS.jsonl OUT [--no-plots]")
    results = load(args[0])
    if not results:
        sys.exit("bench-report.py: no results")
    write_table(results, os.path.join(args[1], "table.md"))
    if "--no-plots" in sys.argv:
        return
    for name, commands in build_plots(results, args[1]):
        script = os.path.join(args[1], name + ".gp")
        with open(script, "w", encoding="utf-8") as f:
            f.write(commands + "\n")
        subprocess.run(["gnuplot", script], check=True)


if __name__ == "__main__":
    main()
