"""The examples run, and find what they say they find."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name):
    """What the example's `main` returns; its lines are captured by pytest."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.main()


@pytest.fixture
def sklearn():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: experiments)")


def test_wearables_every_shape_is_found_and_known_for_whose_it_is(capsys):
    found = run("wearables")
    assert found["n_shared"] == 4
    assert found["shared"] < 0.03
    assert found["own"] < 0.08
    assert all(alone > 2 * found["shared"] for alone in found["alone"])
    assert "4 found, 4 are there" in capsys.readouterr().out


@pytest.mark.usefixtures("sklearn")
def test_digits_a_site_in_the_federation_does_what_pooled_data_would():
    found = run("digits")
    assert max(found["together"]) < 0.9 * min(found["alone"])
    assert max(found["together"]) < 1.02 * found["pooled"]


def test_camera_what_stands_still_in_one_stretch_is_no_background():
    found = run("camera")
    assert found["together"] > max(found["alone"]) + 10
    assert found["f1 together"] > found["f1 alone"] + 0.25
    assert found["f1 together"] > found["f1 all frames"] - 0.01


def test_anomaly_a_frequent_fault_is_told_from_what_all_share():
    found = run("anomaly")
    assert found["n_shared"] == 5
    assert found["shared"] > 0.99
    assert found["shared"] > max(*found["components"], found["energy"]) + 0.1


@pytest.mark.parametrize("name", ["digits", "weak_client"])
def test_what_is_missing_is_said_in_a_line(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match="needs scikit-learn: pip install scikit-learn"):
        run(name)


@pytest.mark.usefixtures("sklearn")
def test_weak_client_gains_what_more_samples_would_give():
    found = run("weak_client")
    assert found["together"] < 0.85 * found["alone"]
    assert found["together"] < found["borrowed"]
    assert found["together"] < 1.03 * found["pooled"]


def test_the_notebook_runs_and_holds_no_output():
    """With a real kernel: whether its figures show is a matter of Jupyter's display."""
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed (extra: dev)")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (extra: dev)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (extra: dev)")
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = {cell.source: output for cell in cells for output in cell.outputs}
    for source, output in shown.items():
        assert output.output_type == "execute_result", output
        assert ("image/png" in output.data) == source.startswith("plots."), source
    first, *_, last = (output.data["text/plain"] for source, output in shown.items() if not source.startswith("plots."))
    assert first.startswith("(3,")
    assert last == "20"
