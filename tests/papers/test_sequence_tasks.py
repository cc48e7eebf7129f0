import contextlib
import itertools
import math
import random
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from papers.sequence.data import Batches, HeldOut, Split
from papers.sequence.models import NextToken, nats_by_place
from papers.sequence.report import bits
from papers.sequence.tasks import listops, pathfinder, released, text
from vit_ls.config import ConfigError
from vit_ls.job import Ranks
from vit_ls.sequence import CausalLongShort, LanguageModel


def ranks(rank=0, world_size=1):
    return Ranks(torch.device("cpu"), rank, world_size)


SMALL = {"depth": 4, "length": [3, 40], "max_length": 64}


def ids_of(words):
    return [listops.IDS[word] for word in words.split()]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("MIN", [4, 2, 9], 2),
        ("MAX", [4, 2, 9], 9),
        ("MED", [4, 2, 9], 4),
        ("MED", [1, 4], 2),  # of 2.5, truncated
        ("MED", [7, 8, 2, 4], 5),
        ("SM", [7, 8, 9], 4),
    ],
)
def test_an_operator_is_what_the_release_makes_of_it(name, values, expected):
    assert listops.evaluated(name, values) == expected


def value_of(tokens):
    """By a stack, as a reader of the formula would."""
    stack = []
    for token in tokens:
        if token != listops.CLOSE:
            stack.append(token)
            continue
        values = []
        while isinstance(stack[-1], int) or stack[-1].isdigit():
            values.append(int(stack.pop()))
        stack.append(listops.evaluated(stack.pop()[1:], values))
    assert len(stack) == 1
    return int(stack[0])


def test_formulas_are_nested_as_deep_as_they_say_and_come_to_what_they_say():
    formulas = list(listops.draw(200, 5, [3, 60], random.Random(1)))
    assert len({f.tokens for f in formulas}) == 200
    for formula in formulas:
        assert 3 < len(formula.tokens) < 60
        assert formula.value == value_of(formula.tokens)
        opened = [t.startswith("[") - (t == listops.CLOSE) for t in formula.tokens]
        assert max(itertools.accumulate(opened)) + 1 == formula.depth <= 5


def test_formulas_of_the_papers_bounds_have_the_lengths_and_the_floor_of_the_release():
    formulas = list(listops.draw(300, 10, [500, 2000], random.Random(0)))
    lengths = np.array([len(f.tokens) for f in formulas])
    # 1035 +- 393 in the release; four standard errors
    assert abs(lengths.mean() - 1035) < 4 * 393 / 300**0.5
    roots = {f.tokens[0] for f in formulas}
    assert roots == {f"[{name}" for name in listops.OPERATORS}
    by_root = listops._by_root(formulas, formulas)
    right = (by_root == torch.tensor([f.value for f in formulas])).double().mean()
    assert 0.28 < right < 0.46  # 0.361 in the release


def test_a_generated_task_depends_on_its_seed_alone_and_shares_no_formula_between_splits():
    make = {"samples": 80, "brackets": True, **SMALL}
    task, again = (listops.generated(seed=3, **make) for _ in range(2))
    assert torch.equal(task.train.ids, again.train.ids)
    assert not torch.equal(task.train.ids, listops.generated(seed=4, **make).train.ids)
    rows = [tuple(row.tolist()) for split in task[:3] for row in split.ids]
    assert len(rows) == len(set(rows)) == 100


def test_too_narrow_bounds_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(listops, "_ATTEMPTS", 1000)
    with pytest.raises(ConfigError, match=r"must leave 500 different formulas, got [1-9]"):
        list(listops.draw(500, 2, [3, 5], random.Random(0)))  # there are 400
    with pytest.raises(ConfigError, match=r"must leave 5 different formulas, got 0"):
        list(listops.draw(5, 2, [100, 200], random.Random(0)))


def write_listops(folder, source="( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ]", target="9"):
    for part in ("train", "val", "test"):
        (folder / f"basic_{part}.tsv").write_text(f"Source\tTarget\n{source}\t{target}\n")


@pytest.mark.parametrize(
    ("brackets", "expected"), [(True, "[MAX 2 9 [MIN 4 7 X X"), (False, "[MAX 2 9 [MIN 4 7")]
)
def test_the_released_files_are_read_with_and_without_closing_brackets(
    tmp_path, brackets, expected
):
    write_listops(tmp_path)
    task = listops.read(tmp_path, max_length=12, brackets=brackets)
    wanted = ids_of(expected)
    assert task.test.ids[0].tolist() == wanted + [0] * (12 - len(wanted))
    assert task.test.labels.tolist() == [9]
    assert task.test.groups.tolist() == [3]


def test_a_formula_is_not_cut_but_refused(tmp_path):
    write_listops(tmp_path)
    message = rf"--length must be at least 8, the longest formula of {tmp_path}, .* got 7\."
    with pytest.raises(ConfigError, match=message):
        listops.read(tmp_path, max_length=7, brackets=True)
    assert listops.read(tmp_path, max_length=7, brackets=False).train.ids.count_nonzero() == 6
    with pytest.raises(ConfigError, match=r"--length must be at least \d+, .* got 20\."):
        listops.generated(40, brackets=True, seed=0, **SMALL | {"max_length": 20})


def test_files_of_another_task_and_missing_ones_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"Long Range Arena's release .*got no .*basic_train"):
        listops.read(tmp_path, max_length=12, brackets=True)
    write_listops(tmp_path, source="once upon a time")
    with pytest.raises(ConfigError, match=r"must hold formulas of ListOps and digits, got 'once'"):
        listops.read(tmp_path, max_length=12, brackets=True)
    write_listops(tmp_path, target="12")
    with pytest.raises(ConfigError, match=r"got '12'"):
        listops.read(tmp_path, max_length=12, brackets=True)
    (tmp_path / "basic_train.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(ConfigError, match="columns Source and Target"):
        listops.read(tmp_path, max_length=12, brackets=True)
    (tmp_path / "basic_train.tsv").write_bytes(b"Source\tTarget\n\xff\t1\n")
    with pytest.raises(ConfigError, match=r"basic_train.tsv must be a table of text in UTF-8"):
        listops.read(tmp_path, max_length=12, brackets=True)
    with pytest.raises(ConfigError, match=r"cifar-10-python.tar.gz"):
        released.image(tmp_path)
    with pytest.raises(ConfigError, match=r"aclImdb_v1.tar.gz"):
        released.text(tmp_path, max_length=8)
    with pytest.raises(ConfigError, match=r"new_aan_pairs.train.tsv"):
        released.retrieval(tmp_path, max_length=8)
    (tmp_path / "new_aan_pairs.train.tsv").write_text("1\ta\tb\n")
    with pytest.raises(ConfigError, match=r"got 3 fields, the first '1'"):
        released.retrieval(tmp_path, max_length=8)
    (tmp_path / "new_aan_pairs.train.tsv").write_bytes(b"1\ta\tb\t\xff\tc\n")
    with pytest.raises(ConfigError, match=r"pairs.train.tsv must be a table of text in UTF-8"):
        released.retrieval(tmp_path, max_length=8)
    with pytest.raises(ConfigError, match=r"must be enwik8 or text8"):
        text.published(tmp_path, 8)
    (tmp_path / "enwik8").write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"must have 100000000 bytes, got 5"):
        text.published(tmp_path, 8)


def test_reviews_are_bytes_plus_one_cut_and_padded(tmp_path):
    for part, label in itertools.product(("train", "test"), ("pos", "neg")):
        (tmp_path / part / label).mkdir(parents=True)
        (tmp_path / part / label / "0_1.txt").write_bytes(b"\x00\xff" + label.encode())
    task = released.text(tmp_path, max_length=4)
    assert task.train.ids.tolist() == [[1, 256, 111, 102], [1, 256, 113, 112]]
    assert task.train.labels.tolist() == [0, 1]
    longer = released.text(tmp_path, max_length=7).train.ids
    assert longer[0].tolist() == [1, 256, 111, 102, 104, 0, 0]


def test_pairs_are_read_without_quoting(tmp_path):
    for part in ("train", "eval", "test"):
        lines = '1.0\tA\tB\t"ab\tc\n0\tC\tD\td\te"\n'
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text(lines)
    task = released.retrieval(tmp_path, max_length=3)
    assert task.train.labels.tolist() == [1, 0]
    assert task.train.ids.tolist() == [[[35, 98, 99], [100, 0, 0]], [[101, 0, 0], [102, 35, 0]]]
    assert task.pair


def test_the_digits_are_held_out_as_in_train_py():
    from vit_ls.data.digits import Digits

    task = released.digits()
    assert task.train.labels.tolist() == Digits(held_out=False).targets
    assert task.test.labels.tolist() == Digits(held_out=True).targets
    assert task.train.ids.shape == (len(task.train.labels), 64)
    assert task.train.ids.max() == 16
    assert task.pad_id is None


def test_grey_is_that_of_the_arena():
    colour = np.array([[[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [10, 20, 30]]]], dtype=np.uint8)
    assert released._grey(colour).tolist() == [[76, 150, 29, 18]]


def test_blocks_of_a_text_predict_each_byte_once():
    blocks = text._blocks(bytes(range(11)), 3)
    assert blocks.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert blocks[:, 1:].flatten().tolist() == list(range(1, 10))
    assert len(text._blocks(b"abc", 3)) == 0
    behind = text._blocks(bytes(range(11)), 3, 2)
    assert behind.tolist() == [[0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8]]
    ((ids, targets),) = HeldOut(Split(behind, None, memory=2), 2, ranks())
    assert ids.tolist() == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]
    assert targets.tolist() == [3, 4, 5, 6, 7, 8]


def held_out_text(count, length, memory):
    return text._task([bytes(range(count))] * 3, length, memory, "")


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(("length", "memory"), [(7, 0), (7, 4), (4, 8), (3, 20), (1, 0), (1, 4)])
def test_a_held_out_text_of_any_length_is_predicted_once_but_for_its_first_byte(
    length, memory, world_size
):
    for count in range(length + memory + 1, length + memory + 20):
        task = held_out_text(count, length, memory)
        said = []
        for rank in range(world_size):
            for ids, targets in HeldOut(task.test, 3, ranks(rank, world_size)):
                assert len(targets) % len(ids) == 0
                assert ids.shape[1] <= length + memory
                rows = targets.view(len(ids), -1)
                # what is predicted follows what is read, with a whole memory where there is one
                assert torch.equal(rows[:, :-1], ids[:, ids.shape[1] - rows.shape[1] + 1 :])
                assert torch.equal(rows[:, -1], ids[:, -1] + 1)
                assert ids.shape[1] - rows.shape[1] in ({memory} if rows[0, 0] > memory else {0})
                said += targets.tolist()
        assert sorted(said) == list(range(1, count))
        assert task.test.tokens == count
    assert task.train.edges == ()


def test_files_of_the_library_stand_in_one_split_each():
    task = text.library(64, 60_000, 0)
    assert min(len(split.ids) for split in task[:3]) > 10
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [bytes(split.ids[:, :-1].flatten().tolist()) for split in task[:3]]
    found = []
    for name in sorted(p.relative_to(folder).as_posix() for p in folder.glob("*.py")):
        source = (folder / name).read_bytes()[:2000]
        if len(source) == 2000:
            found.append([source in text for text in texts])
    assert max(map(sum, found)) == 1
    assert "PSF License" in task.source


def numbered(count, width=3, **options):
    ids = torch.arange(1, count + 1, dtype=torch.int16)[:, None].expand(-1, width)
    return Split(ids, torch.arange(count), **options)


def order(batches, epoch, start=0):
    return [tuple(labels.tolist()) for _, labels in batches.epoch(epoch, start)]


def batches_of(rank=0, world_size=1, epoch_updates=None, count=23):
    options = {"seed": 5, "epoch_updates": epoch_updates, "classes": ["a"]}
    return Batches(numbered(count), 4, ranks(rank, world_size), **options)


def test_a_pass_takes_each_sample_once_and_the_next_another_order():
    batches = batches_of()
    first, second = order(batches, 0), order(batches, 1)
    assert len(batches) == len(first) == 5
    assert len({*itertools.chain(*first)}) == 20
    assert first != second
    assert order(batches, 1, start=3) == second[3:]


def test_epochs_of_some_updates_go_on_through_the_passes():
    whole, parts = batches_of(), batches_of(epoch_updates=3)
    in_parts = [batch for epoch in range(5) for batch in order(parts, epoch)]
    assert in_parts == [batch for epoch in range(3) for batch in order(whole, epoch)]
    assert order(parts, 3, start=2) == order(parts, 3)[2:]


def test_processes_share_a_pass():
    two = [order(batches_of(rank, 2), 0) for rank in range(2)]
    assert [len(part) for part in two] == [2, 2]
    assert len({*itertools.chain(*two[0], *two[1])}) == 16


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_an_evaluation_counts_each_sample_once(world_size):
    seen = []
    for rank in range(world_size):
        for _, labels in HeldOut(numbered(23), 4, ranks(rank, world_size)):
            seen += labels.tolist()
    assert sorted(seen) == list(range(23))


def test_only_padding_is_cut_off_a_batch():
    ids = torch.tensor([[1, 0, 2, 0, 0], [3, 0, 0, 0, 0]])
    for padded, width in ((True, 3), (False, 5)):
        split = Split(ids, torch.tensor([0, 1]), padded=padded)
        ((batch, _),) = HeldOut(split, 2, ranks())
        assert torch.equal(batch, ids[:, :width])


@pytest.mark.parametrize("difficulty", pathfinder.CONTOURS)
def test_paths_touch_nothing_and_marks_stand_at_the_ends_that_the_label_says(difficulty):
    contour, rng = pathfinder.CONTOURS[difficulty], random.Random(0)
    for _ in range(6):
        picture = pathfinder.draw(contour, rng)
        first, second = picture.targets
        assert len(first) == len(second) == contour
        assert all(len(path) == contour // 3 for path in picture.distractors)
        apart = np.hypot(*np.subtract(first[0].start, second[0].start))
        assert apart == pytest.approx(7)
        ends = [(path[0].start, path[-1].end) for path in (first, second)]
        same_path = picture.marks in ends
        other_paths = picture.marks in [(ends[0][0], ends[1][1]), (ends[1][0], ends[0][1])]
        assert (same_path, other_paths) == (picture.label == 1, picture.label == 0)
        dashes = [dash for path in picture.targets + picture.distractors for dash in path]
        for one, other in itertools.combinations(dashes, 2):
            assert distance(one, other) > 0.5
        for path in picture.targets:
            for one, other in itertools.pairwise(path):
                assert np.hypot(*np.subtract(one.end, other.start)) == pytest.approx(1)
                assert abs(np.angle(np.exp(1j * (other.angle - one.angle)))) < np.pi / 2


def distance(one, other):
    """Of two line pieces, by points on them."""
    share = np.linspace(0, 1, 21)[:, None]
    a, b = (np.array(d.start) * (1 - share) + np.array(d.end) * share for d in (one, other))
    return np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1)).min()


def test_images_of_paths_are_bytes_drawn_by_their_seed():
    task, again = (pathfinder.generated(8, difficulty="easy", seed=2) for _ in range(2))
    assert torch.equal(task.train.ids, again.train.ids)
    assert task.train.ids.shape == (8, 1024)
    assert task.train.ids.amax(1).eq(255).all()
    assert task.pad_id is None
    rows = [tuple(row.tolist()) for split in task[:3] for row in split.ids]
    assert len(set(rows)) == 10


def write_pathfinder(folder, count=20, lines=None):
    root = folder / "curv_contour_length_14"
    for number in range(2):
        (root / "imgs" / str(number)).mkdir(parents=True)
        (root / "metadata").mkdir(exist_ok=True)
        names = [f"sample_{i}.png" for i in range(count)]
        for i, name in enumerate(names):
            pixels = np.full((32, 32), 100 * number + i, dtype=np.uint8)
            Image.fromarray(pixels).save(root / "imgs" / str(number) / name)
        rows = lines or [f"imgs/{number} {name} {i} {i % 2} 1" for i, name in enumerate(names)]
        (root / "metadata" / f"{number}.npy").write_text("\n".join(rows) + "\n")
    return root


def test_released_images_of_paths_are_read_in_the_order_of_their_lists(tmp_path):
    root = write_pathfinder(tmp_path)
    (root / "imgs" / "0" / "sample_3.png").write_bytes(b"")
    task = pathfinder.read(tmp_path, difficulty="hard")
    assert [len(split.ids) for split in task[:3]] == [31, 4, 4]
    said = [i for i in range(20) if i != 3] + [100 + i for i in range(20)]
    assert torch.cat([split.ids[:, 5] for split in task[:3]]).tolist() == said
    assert torch.cat([split.labels for split in task[:3]]).tolist() == [i % 2 for i in said]
    assert task.train.ids.shape[1] == 1024
    assert str(root) in task.source


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("imgs/0 sample_0.png 0", "a label 0 or 1, got 'imgs/0 sample_0.png 0'"),
        ("imgs/0 sample_0.png 0 2", "a label 0 or 1"),
        ("imgs/0 sample_99.png 0 1", "must name images that are there"),
        ("imgs/0 sample_0.png 0 1", "must hold at least 10 images, got 2"),
    ],
)
def test_lists_that_are_not_of_pathfinder_are_one_line(tmp_path, line, message):
    write_pathfinder(tmp_path, 1, [line])
    with pytest.raises(ConfigError, match=message):
        pathfinder.read(tmp_path, difficulty="hard")


def test_images_of_another_size_or_kind_are_one_line(tmp_path):
    root = write_pathfinder(tmp_path, 10)
    path = root / "imgs" / "0" / "sample_0.png"
    Image.new("L", (64, 64)).save(path)
    with pytest.raises(ConfigError, match=r"must be 32 x 32 pixels, got \(64, 64\)"):
        pathfinder.read(tmp_path, difficulty="hard")
    path.write_bytes(b"no image")
    with pytest.raises(ConfigError, match="must be an image"):
        pathfinder.read(tmp_path, difficulty="hard")
    with pytest.raises(ConfigError, match="must hold curv_baseline, of --difficulty easy"):
        pathfinder.read(tmp_path, difficulty="easy")


def test_a_memory_is_read_and_not_predicted():
    spec = CausalLongShort(8, 4, 1)
    model = LanguageModel(
        vocab_size=9, dim=8, depth=2, num_heads=2, hidden=8, attention=spec, memory_length=8
    )
    ids = torch.randint(0, 9, (2, 20), generator=torch.Generator().manual_seed(0))
    logits = NextToken(model)(ids).view(2, 12, 9)
    assert torch.allclose(logits, model.advance(ids)[0][:, 8:], atol=1e-5)
    changed = ids.clone()
    changed[:, 7] = (ids[:, 7] + 1) % 9
    assert not torch.allclose(NextToken(model)(changed).view(2, 12, 9), logits)


class Table(torch.nn.Module):
    """Says of each token what a table has for it."""

    def __init__(self, memory=0):
        super().__init__()
        self.memory = memory
        self.table = torch.randn(40, 40, generator=torch.Generator().manual_seed(0))

    def forward(self, ids):
        ids = ids[:, self.memory :] if ids.shape[1] > self.memory else ids
        return self.table[ids].flatten(0, 1)


@pytest.mark.parametrize(("count", "memory"), [(31, 0), (38, 0), (38, 4), (40, 15)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_bits_are_those_of_every_byte_with_any_batch_size(count, memory, size):
    split = held_out_text(count, 6, memory).test
    model = Table(memory)
    by_place = nats_by_place(
        model, HeldOut(split, size, ranks()), ranks(), contextlib.nullcontext(), 6
    )
    nats = torch.tensor(
        [-model.table.log_softmax(1)[t, t + 1] for t in range(count - 1)], dtype=torch.float64
    )
    found = bits(by_place, split.tokens)
    assert found.values["bits_per_byte"] == pytest.approx(float(nats.mean()) / math.log(2))
    assert found.counted == f"{count - 1} of {count} bytes; nothing stands before the first"
    # the place of a byte after the memory
    places = [(t - memory) % 6 if t >= memory else 6 for t in range(count - 1)]
    for place in range(7):
        here = nats[[i for i, p in enumerate(places) if p == place]]
        assert by_place[:, place].tolist() == pytest.approx([float(here.sum()), len(here)])
    assert sum(number for _, _, number in found.points) == count - 1
    mean = sum(value * number for _, value, number in found.points) / (count - 1)
    assert mean == pytest.approx(found.values["bits_per_byte"])


def test_the_beginning_of_a_text_is_predicted_without_a_memory():
    spec = CausalLongShort(8, 4, 1)
    model = LanguageModel(
        vocab_size=9, dim=8, depth=2, num_heads=2, hidden=8, attention=spec, memory_length=8
    )
    ids = torch.randint(0, 9, (1, 20), generator=torch.Generator().manual_seed(0))
    expected = model.advance(ids)[0]
    wrapped = NextToken(model)
    for n in (1, 7, 8):
        logits = wrapped(ids[:, :n])
        torch.testing.assert_close(logits, expected[0, :n], rtol=0, atol=1e-5)
    logits = wrapped(ids[:, :11])
    torch.testing.assert_close(logits, expected[0, 8:11], rtol=0, atol=1e-5)
