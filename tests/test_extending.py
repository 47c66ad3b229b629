"""The parts that docs/extending.md adds can be chosen and run, and leave nothing behind."""

import re
from pathlib import Path

import numpy as np
import pytest

from common.aggregations import AGGREGATIONS
from common.coders import CODERS
from common.errors import DataError, SettingsError
from common.learners import LEARNERS
from common.settings import load_settings
from perdl.cli.settings_page import setting_rows
from perdl.report.figures import FIGURES
from perdl.report.page import render_report
from perdl_client.data.preprocessing import PREPROCESSING
from perdl_client.formats.read import load_samples
from perdl_client.formats.registry import FORMATS
from perdl_client.model import load_model
from perdl_server.algorithm.aggregation import COMBINE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "extending.md"
SECTIONS = dict(re.findall(r"\n## ([^\n]+)\n.*?```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
REGISTRIES = (AGGREGATIONS, CODERS, COMBINE, FIGURES, FORMATS, LEARNERS, PREPROCESSING)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the block of a section; the registries are emptied of it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    before = [dict(registry) for registry in REGISTRIES]

    def block(title):
        names = {"__name__": "page"}
        exec(compile(SECTIONS[title], title, "exec"), names)
        return names

    yield block
    for registry, held in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(held)


def test_every_section_has_a_block_and_a_test():
    assert list(SECTIONS) == [
        "A coder",
        "A learner",
        "An aggregation",
        "A file format",
        "A step of the preprocessing",
        "A figure",
    ]
    for registry in re.findall(r"`[a-z_.]+\.([A-Z]+)`", PAGE.read_text()):
        assert any(registry in text for text in SECTIONS.values()), registry


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("title", "setting", "name", "folder"),
    [
        ("A coder", "coder", "soft-threshold", "soft"),
        ("A learner", "learner", "optimal-directions", "directions"),
        ("An aggregation", "aggregation", "median", "median"),
    ],
)
def test_a_part_that_a_setting_names_can_be_chosen_once_it_is_registered(run, title, setting, name, folder):
    with pytest.raises(SettingsError, match=f"{setting} = '{name}': must be "):
        load_settings(None, [f"{setting}={name}"])
    result = run(title)["result"]
    assert result.summary["settings"][setting] == name
    assert result.summary["rounds"] == 5
    assert np.isfinite(result.global_dictionary).all()
    client = next(iter(result.local_dictionaries))
    assert type(load_model(result.folder / "clients" / client).coder) is type(
        CODERS[result.summary["settings"]["coder"]].make(1)
    )
    with pytest.raises(SettingsError, match=f"or '{name}'"):
        load_settings(None, [f"{setting}=other"])
    assert name in next(allowed for key, _, allowed, _ in setting_rows() if key == setting)


def test_a_file_format_is_read_and_told_of(run, tmp_path):
    (tmp_path / "b.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="unknown extension"):
        load_samples(tmp_path / "b.jsonl")
    np.testing.assert_array_equal(run("A file format")["samples"].data, [[1, 4], [2, 5], [3, 6]])
    (tmp_path / "a.what").write_text("1")
    with pytest.raises(DataError, match=r"known are .*\.jsonl"):
        load_samples(tmp_path / "a.what")
    (tmp_path / "ada.jsonl").write_text("[1, 2\n")
    with pytest.raises(DataError, match="is not a file of JSON lines, or is damaged"):
        load_samples(tmp_path / "ada.jsonl")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_step_of_the_preprocessing_is_done_and_undone(run, tmp_path):
    names = run("A step of the preprocessing")
    model, X = names["model"], names["sites"]["ada"]
    codes = model.transform(X, "ada")
    np.testing.assert_allclose(names["shared"] + names["own"], model.inverse_transform(codes, "ada"))
    # Features of sizes 1 to 1000 are written equally well: each was divided by its own.
    errors = np.linalg.norm(X - names["shared"] - names["own"], axis=0) / np.linalg.norm(X, axis=0)
    assert errors.max() < 0.5
    model.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.transform(X, "ada"), codes)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_figure_is_drawn_and_in_the_report(run, tmp_path):
    result = run("A figure")["run"]
    assert (tmp_path / "samples.pdf").read_bytes().startswith(b"%PDF")
    page = render_report(result)
    assert '<h2 id="samples">Samples</h2>' in page
    assert "From 20 to 200 samples a client." in page
    assert (result.folder / "figures" / "samples.png").exists()
