import pytest

from benchmarks import sequence_scaling


def rows_of(**steps):
    return [
        {"system": name, "length": length, "step_ms": value}
        for name, values in steps.items()
        for length, value in zip((1, 2, 4, 8), values, strict=True)
    ]


def test_the_exponent_is_the_slope_from_a_length_on():
    rows = rows_of(full=(9, 4, 16, 64), LS=(3, 3, 6, 12))
    assert sequence_scaling.exponent(rows, "full", "step_ms", 2) == pytest.approx(2)
    assert sequence_scaling.exponent(rows, "LS", "step_ms", 2) == pytest.approx(1)


def test_the_crossover_is_where_a_system_is_faster_from_then_on():
    rows = rows_of(full=(3, 5, 9, 40), LS=(2, 6, 8, 12), CST=(4, 6, 10, 41))
    assert sequence_scaling.crossover(rows, "LS") == 4
    assert sequence_scaling.crossover(rows, "CST") is None
    assert sequence_scaling.crossover(rows, "full") is None


def test_every_system_is_measured():
    rows = sequence_scaling.measure(64, 1)
    assert [row["system"] for row in rows] == list(sequence_scaling.SYSTEMS)
    assert all(row[what] > 0 for row in rows for what in sequence_scaling.MEASURES)
