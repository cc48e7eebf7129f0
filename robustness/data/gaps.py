"""What is missing, in few lines."""


def gather(lines: dict[str, list[str]]) -> list[str]:
    """The lines of all cells, the same one of many cells once with their names before it."""
    cells_of: dict[str, list[str]] = {}
    for name, own in lines.items():
        for line in own:
            cells_of.setdefault(line, []).append(name)
    return [f"{_some(names)}{line}" for line, names in cells_of.items()]


def _some(names: list[str]) -> str:
    if names == ["all"]:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: "
