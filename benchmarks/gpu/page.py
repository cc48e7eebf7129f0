"""What a session found, on one page with pictures."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.plan import Plan, Row, read, rows_file
from benchmarks.gpu.worker import SLICES
from benchmarks.speed.subjects import MODES
from vit_ls.job.machine import machine
from vit_ls.style import log_axis, look, markdown_table, picture


def write(plan: Plan) -> None:
    """Write page.md and the pictures, of the rows that are there."""
    parts = ["# What was measured on this GPU"]
    if plan.rehearse:
        parts = [
            "# A rehearsal",
            "It ran on a CPU, in Triton's interpreter. Its times say nothing.",
        ]
    parts.append("\n".join(f"- {k.strip('# ')}: {v}" for k, v in machine(plan.device)))
    parts += ["## What failed", *_failed(plan)]
    for letter, slice_ in SLICES.items():
        rows = read(rows_file(plan, letter))
        parts.append(f"## ({letter}) {slice_.title}: {len(rows)} rows")
        if rows:
            parts += PARTS[letter](plan, rows)
    (plan.folder / "page.md").write_text("\n\n".join(parts) + "\n")


def _failed(plan: Plan) -> Iterator[str]:
    rows = read(plan.folder / "failed.csv")
    cells = [(r["slice"], r["case"], r["error"].replace("|", "/")) for r in rows]
    yield markdown_table(("slice", "case", "error"), cells) if rows else "Nothing."


def _kernels(_plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        groups.setdefault((r["impl"], r["dtype"]), []).append(r)
    cells = []
    for (impl, dtype), some in groups.items():
        worst = max(some, key=lambda r: float(r["error"]))
        wrong = sum(r["ok"] != "yes" for r in some)
        where = f"{worst['what']}, window {worst['window']}, halo {worst['halo']}"
        cells.append((impl, dtype, str(len(some)), str(wrong), worst["error"], where))
    head = ("implementation", "precision", "rows", "wrong", "largest error", "where")
    yield markdown_table(head, cells, numbers=(2, 3, 4))


def _all_rows(_plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    yield markdown_table(tuple(rows[0]), [tuple(r.values()) for r in rows])


def _models(plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    yield "`mfu` is the share of the GPU's peak, empty where its peak is not known."
    yield from _all_rows(plan, rows)
    for mode in MODES:
        some = [r for r in rows if r["mode"] == mode]
        # where a largest batch was measured, it stands behind the single image
        fastest = {(r["model"], int(r["size"])): float(r["images_per_s"]) for r in some}
        if fastest:
            path = plan.folder / f"models_{mode}.png"
            _draw(plan, path, mode, fastest)
            yield f"![Images per second by size, {mode}]({path.name})"


def _draw(plan: Plan, path: Path, mode: str, found: dict[tuple[str, int], float]) -> None:
    models = list(dict.fromkeys(model for model, _ in found))
    sizes = sorted({size for _, size in found})
    at_largest = {m: found[m, sizes[-1]] for m in models if (m, sizes[-1]) in found}
    best = max(at_largest, key=at_largest.__getitem__)
    title = f"At {sizes[-1]} pixels {best} is first, with {at_largest[best]:.0f} images a second"
    note = f"{mode}, bf16, the largest batch that fits; {machine(plan.device)[0][1]}"
    with picture(path, title, note=note) as (axes,):
        for number, model in enumerate(models):
            there = [size for size in sizes if (model, size) in found]
            heights = [found[model, size] for size in there]
            axes.plot(there, heights, label=model, **look(number, len(models)))
        axes.set(xlabel="side of the image (pixels)", ylabel="images per second")
        log_axis(axes.xaxis, sizes)
        log_axis(axes.yaxis)


def _windows(plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    for r in rows:
        key = (r["kind"], r["shape"], r["dtype"], r["trained"])
        groups.setdefault(key, {})[r["way"]] = float(r["ms"])
    ways = list(dict.fromkeys(r["way"] for r in rows))
    cells = [
        (*key, *(f"{ms[way]:.3f}" if way in ms else "" for way in ways))
        for key, ms in groups.items()
    ]
    head = ("kind", "shape", "precision", "trained", *(f"{way} (ms)" for way in ways))
    yield markdown_table(head, cells, numbers=range(4, len(head)))
    yield "A rehearsal decides nothing." if plan.rehearse else verdict(groups.values())


def verdict(groups: Iterable[dict[str, float]]) -> str:
    """Whether the Triton kernel is to stay: it is where it is faster than SDPA on windows."""
    both = [ms for ms in groups if {"triton", "tiled"} <= ms.keys()]
    faster = sum(ms["triton"] < ms["tiled"] for ms in both)
    said = f"Triton is faster than SDPA on gathered windows in {faster} of {len(both)} cases"
    if not both:
        return "Triton was not measured beside SDPA, so nothing is decided."
    return f"{said}: {'it stays, for those.' if faster else 'it goes.'}"


def _rules(_plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    slow = [r for r in rows if r["verdict"]]
    chosen = sum(r["chosen"] == "*" for r in rows)
    yield f"The rules chose one that is over 10 % slower than the best in {len(slow)} of {chosen}."
    if slow:
        yield from _all_rows(_plan, slow)


PARTS = {"a": _kernels, "b": _all_rows, "c": _models, "d": _windows, "e": _rules}
