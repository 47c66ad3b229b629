"""Figures show the numbers of the run, whatever they are made from, and words say the same."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import perdl
from common.errors import PerdlError
from perdl import plots
from perdl.report.drawing import HATCH, OWN, REST, SHARED, to_svg
from perdl.report.figures import FIGURES
from perdl.results.run_result import RunResult, as_result

RUN = ("convergence", "path_lengths", "variance", "atoms", "usage", "participation")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A simulation that finds by itself that three of six atoms are shared."""
    chosen = {"n_global": "auto", "n_clients": 4, "synthetic.noise": 0.02}
    return perdl.simulate("synthetic", chosen, output=tmp_path_factory.mktemp("runs") / "run", overwrite=True)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    D = np.linalg.qr(rng.standard_normal((5, 5))).Q
    data = {name: (D @ (rng.standard_normal((5, 200)) * (rng.random((5, 200)) < 0.3))).T for name in ("ada", "bob")}
    return perdl.PerDL(n_global=2, rounds=4).fit(data)


def made_up(**changes):
    """A result of two clients and one shared atom, as far as a test does not say otherwise."""
    result = RunResult(None, {"clients": {"a": {}, "b": {}}, "n_global": 1}, np.eye(4)[:, :1], np.ones(1))
    return dataclasses.replace(result, shape=(4,), **changes)


@pytest.mark.parametrize("name", RUN)
def test_a_figure_is_the_same_from_a_folder_and_a_result_and_is_said_in_words(run, name):
    from_folder, from_result = getattr(plots, name)(str(run.folder)), getattr(plots, name)(run)
    assert isinstance(from_folder, Figure)
    assert name != "variance" or to_svg(from_folder) == to_svg(from_result)
    assert plots.describe(name, run) == plots.describe(name, run.folder)
    assert re.search(r"\d", plots.describe(name, run))


@pytest.mark.parametrize("name", ["convergence", "path_lengths", "variance", "atoms"])
def test_a_fitted_model_can_be_drawn_and_shows_in_a_notebook(model, name):
    figure = getattr(plots, name)(model)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert plots.describe(name, model)


def test_convergence_has_the_rows_of_each_round(run):
    top, middle, bottom = plots.convergence(run).axes
    t = [row["round"] for row in run.history]
    for axes, line, values in (
        (top, 0, [row["error_before_update"]["median"] for row in run.history]),
        (middle, 0, [row["change"] for row in run.history]),
        (bottom, 0, [row["consensus"]["min"] for row in run.history]),
    ):
        np.testing.assert_array_equal(axes.lines[line].get_data(), [t, values])
    corners = top.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == min(row["error_before_update"]["min"] for row in run.history)
    words = plots.describe("convergence", run)
    assert f"{len(t)} rounds." in words
    assert f"{run.history[-1]['change']:.2g}" in words


def test_path_lengths_are_means_over_edges_with_the_jump_and_what_chance_gives(run):
    (axes,) = plots.path_lengths(run).axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    edges = np.array(run.summary["path_lengths"]) / 3  # of four clients
    assert run.summary["n_global"] == 3
    np.testing.assert_allclose(lines["shared"], edges[:3])
    np.testing.assert_allclose(lines["not shared"], edges[3:])
    np.testing.assert_allclose(lines["unrelated atoms"], run.summary["unrelated_edges"][: len(edges)])
    np.testing.assert_allclose(lines["nearer is hardly chance"], run.summary["unrelated_bound"][: len(edges)])
    assert [3.5, 3.5] in [list(line.get_xdata()) for line in axes.lines]
    assert f"not shared: {edges[3]:.2g}" in plots.describe("path_lengths", run)


def test_variance_adds_up_and_is_what_clients_told(run):
    (axes,) = plots.variance(run).axes
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    facts = run.summary["clients"].values()
    np.testing.assert_allclose(widths[0], [f["final_shared"] for f in facts])
    np.testing.assert_allclose(widths[1], [f["final_own"] for f in facts])
    np.testing.assert_allclose(widths.sum(axis=0), 1)
    np.testing.assert_allclose(widths[2], [f["final_error"] ** 2 for f in facts], atol=2e-3)  # told with three digits
    assert [text.get_text() for text in axes.get_yticklabels()] == list(run.summary["clients"])


@pytest.mark.parametrize(("n_atoms", "name"), [(0, "a"), (1, "a"), (1, "a name that is cut"), (30, "a")])
def test_no_word_of_the_figure_of_usage_is_cut_off(n_atoms, name):
    result = made_up(usage={name: np.linspace(0, 1, n_atoms + 2)})
    figure = plots.usage(dataclasses.replace(result, global_dictionary=np.eye(40)[:, :n_atoms]))
    figure.canvas.draw()
    words = [text for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels())]
    for text in filter(lambda text: text.get_text(), words):
        box = text.get_window_extent()
        assert box.y0 >= 0, text
        assert box.y1 <= figure.bbox.height, text


def test_without_shared_atoms_figures_do_not_speak_of_them():
    usage = {"a": np.array([0.5, 0.4]), "b": np.array([0.9])}
    result = made_up(usage=usage, history=[{"round": 1, "change": 0.0, "consensus": {}}])
    result = dataclasses.replace(
        result, summary={**result.summary, "n_global": 0}, global_dictionary=np.empty((4, 0)), consensus=np.empty(0)
    )
    words = plots.describe("usage", result)
    assert "each shared atom" not in words
    assert words.endswith("all its own atoms carry together: there is no shared atom.")
    assert not plots.usage(result).axes[0].lines[1:], "no line between shared and own"
    with pytest.raises(PerdlError, match="there is no shared atom that could move"):
        plots.convergence(result)


def test_usage_is_that_of_the_clients_models(run):
    axes = plots.usage(run).axes[0]
    shown = axes.images[0].get_array() ** 3
    for column, name in enumerate(run.summary["clients"]):
        with np.load(run.folder / "clients" / name / "dictionary.npz") as file:
            np.testing.assert_allclose(shown[:-1, column], file["usage"][:3])
            np.testing.assert_allclose(shown[-1, column], file["usage"][3:].sum())
    assert axes.get_yticklabels()[-1].get_text() == "all own", "own atoms of different clients have no row in common"


def test_an_atom_without_any_use_gets_a_cross_and_a_word():
    result = made_up(usage={"a": np.array([0, 0.5, 0.2]), "b": np.array([0, 0.9])})
    (cross,) = plots.usage(result).axes[0].lines[:1]
    np.testing.assert_array_equal(cross.get_data(), [[0, 1], [0, 0]])
    assert "No client uses shared atom 1." in plots.describe("usage", result)


SOME = {"a": np.array([True, False, True]), "b": np.array([True, True, False]), "c": np.array([True, False, False])}


def shared_by_some(**changes):
    """Three atoms: all share the first, a and b one more each."""
    result = RunResult(None, {"clients": {"a": {}, "b": {}, "c": {}}, "n_global": 3}, np.eye(4)[:, :3], np.ones(3))
    return dataclasses.replace(result, shape=(4,), **{"members": SOME, **changes})


def test_membership_is_a_matrix_of_atoms_and_clients():
    result = shared_by_some()
    axes = plots.membership(result).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), np.array(list(SOME.values())).T)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
    words = plots.describe("membership", result)
    assert words == "Who shares which of 3 atoms: atom 1 is shared by all 3 clients; atoms 2, 3 by 1 each."
    none = plots.describe("membership", shared_by_some(members={**SOME, "c": np.zeros(3, dtype=bool)}))
    assert none.endswith(" c shares none.")
    rows = FIGURES["membership"].numbers(result, None)
    assert rows[0] == {"client": "a", "shared 1": "yes", "shared 2": "-", "shared 3": "yes", "in all": "2 of 3"}


def test_membership_says_why_there_is_none(run):
    with pytest.raises(PerdlError, match="all clients share all shared atoms"):
        plots.membership(run)
    with pytest.raises(PerdlError, match="no atom is shared by two clients or more"):
        plots.membership(shared_by_some(members={"a": np.empty(0, dtype=bool)}, global_dictionary=np.empty((4, 0))))
    with pytest.raises(PerdlError, match="matched in groups, not along paths"):
        plots.path_lengths(shared_by_some())


def test_usage_hatches_what_a_client_does_not_share_and_crosses_only_what_it_does():
    usage = {"a": np.array([0.5, 0, 0, 0.1]), "b": np.array([0.4, 0.1, 0, 0.1]), "c": np.array([0.4, 0, 0, 0.3])}
    result = shared_by_some(usage=usage)
    axes = plots.usage(result).axes[0]
    (cross,) = axes.lines[:1]
    np.testing.assert_array_equal(cross.get_data(), [[0], [2]], err_msg="a shares atom 3, and does not use it")
    hatched = {(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in axes.patches if patch.get_hatch()}
    assert hatched == {(0, 1), (1, 2), (2, 1), (2, 2)}
    words = plots.describe("usage", result)
    assert "No client uses shared atom 3. Hatched: the client does not share that atom." in words
    rows = FIGURES["usage"].numbers(result, None)
    assert [row["shared 2"] for row in rows] == ["-", "10.0%", "-"]


def test_a_clients_own_atoms_figure_has_the_atoms_that_it_shares():
    mine = {"a": SOME["a"]}
    result = shared_by_some(client="a", members=mine, usage={"a": np.array([0.5, 0, 0.2, 0.1])}, summary={})
    result = dataclasses.replace(
        result, global_dictionary=np.where(SOME["a"], np.eye(4)[:, :3], 0), local_dictionaries={"a": np.eye(4)[:, 3:]}
    )
    (axes,) = plots.atoms(result).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "3"], "none is called unused"
    assert plots.describe("atoms", result).startswith("2 shared atoms, ")
    lonely = dataclasses.replace(result, members={"a": np.zeros(3, dtype=bool)})
    with pytest.raises(PerdlError, match="a shares none of the 3 shared atoms"):
        plots.atoms(lonely)


def test_participation_has_a_gap_where_a_client_was_away():
    rows = [{"round": t, "client": name} for t in range(1, 8) for name in "ab" if not (name == "b" and t in (3, 4, 7))]
    result = made_up(metrics=rows)
    spans = [path.vertices[:, 0].tolist() for lines in plots.participation(result).axes[0].collections
             for path in lines.get_paths()]  # fmt: skip
    assert spans == [[0.6, 7.4], [0.6, 2.4], [4.6, 6.4]]
    assert "b missed 3" in plots.describe("participation", result)


def test_atoms_are_bars_with_names_where_features_are_few(run):
    D = np.array([[0.0, -0.8, 0.6, 0.0], [1, 0, 0, 0]]).T
    (axes,) = plots.atoms(made_up(global_dictionary=D, feature_names=("age", "a$b$", "x" * 40, "<b>"))).axes
    bars = np.array([[bar.get_width() for bar in container] for container in axes.containers])
    assert (bars[0] / bars[0].max()).round(6).tolist() == [0, 1, -0.75, 0], "the larger part is positive"
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["age", r"a\$b\$", "x" * 17 + "…", "<b>"]
    svg = to_svg(plots.atoms(made_up(global_dictionary=D, feature_names=("age", "a$b$", "x", "<b>"))))
    assert ">a$b$<" in svg.replace("\\", "")
    assert "<b>" not in svg


@pytest.mark.parametrize(("shape", "most"), [((4, 6), 100), ((4, 2, 3), 100), ((30,), 30), ((3,), 8)])
def test_many_atoms_are_cut_to_what_fits_and_it_is_said(shape, most):
    rng = np.random.default_rng(0)
    result = made_up(global_dictionary=rng.standard_normal((int(np.prod(shape)), 400)))
    result = dataclasses.replace(result, shape=shape)
    assert f"The first {most} of 400 are shown." in plots.describe("atoms", result)
    figure = plots.atoms(result)
    assert figure.get_figheight() <= 10
    if len(shape) > 1:
        (axes,) = figure.axes
        page = axes.images[0].get_array()
        atom = result.global_dictionary[:, 11].reshape(*shape)  # the second of the second row
        atom = atom * np.sign((atom * np.abs(atom)).sum()) / (2 * np.abs(atom).max()) + 0.5
        found = page[shape[0] + 1 : 2 * shape[0] + 1, shape[1] + 1 : 2 * shape[1] + 1]
        np.testing.assert_allclose(found, atom if len(shape) == 3 else np.repeat(atom[..., None], 3, axis=2))


def test_windows_of_a_series_are_curves_a_channel_each():
    atom = np.arange(12.0)[:, None] / 12
    result = dataclasses.replace(made_up(global_dictionary=atom), shape=(6, 2), is_series=True)
    _, *channels = plots.atoms(result).axes[0].lines
    assert len(channels) == 2
    assert channels[0].get_linestyle() != channels[1].get_linestyle()
    rise = -(channels[1].get_ydata() - channels[0].get_ydata())
    np.testing.assert_allclose(rise, rise[0])


def test_a_shape_that_the_source_cannot_know_is_told():
    result = made_up(global_dictionary=np.linspace(-1, 1, 96)[:, None])
    result = dataclasses.replace(result, shape=(96,))
    assert len(plots.atoms(result).axes[0].lines) == 2
    assert len(plots.atoms(result, shape=(32, 3), series=True).axes[0].lines) == 4
    assert "a curve over 32 rows" in plots.describe("atoms", result, shape=(32, 3), series=True)
    assert plots.atoms(result, shape=(8, 12)).axes[0].images
    with pytest.raises(PerdlError, match=r"shape = \(8, 8\): must be numbers whose product is 96"):
        plots.atoms(result, shape=(8, 8))


@pytest.mark.parametrize("shape", [(4,), (30,), (4, 6)])
def test_own_atoms_that_no_sample_uses_are_left_out_unless_asked_for(shape):
    D = np.random.default_rng(0).standard_normal((int(np.prod(shape)), 3))
    result = made_up(
        global_dictionary=D[:, :1], local_dictionaries={"a": D}, usage={"a": np.array([0.3, 0.5, 1e-7, 0.1])}
    )
    result = dataclasses.replace(result, shape=shape)
    (axes,) = plots.atoms(result, "a").axes
    marked = {(4,): ["2\nunused"], (30,): ["2 unused"], (4, 6): []}[shape]  # there is no label for each image
    labels = axes.get_xticklabels() if shape == (4,) else axes.get_yticklabels()
    assert [text.get_text() for text in labels] == (["1"] if len(shape) > 1 else ["1", "3"]), "the largest first"
    text = plots.describe("atoms", result, "a")
    assert "2 atoms of a alone" in text
    assert "energy that they carry: atom 1 (50.0%), atom 3 (10.0%). Left out: 1 atom that next to no sample" in text

    (axes,) = plots.atoms(result, "a", unused=True).axes
    said = [text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert [text for text in said if "unused" in text] == marked
    assert len(axes.lines) == {(4,): 3, (30,): 6, (4, 6): 2}[shape]
    assert "crossed out" not in plots.describe("atoms", result)
    unused = dataclasses.replace(result, usage={"a": np.array([0, 0.5, 0.1, 0.1])})
    assert "uses atom 1: it is pale or crossed out." in plots.describe("atoms", unused)


def test_a_server_says_where_names_are_and_one_client_is_no_average():
    text = plots.describe("atoms", made_up())
    assert "names stay with the clients" in text
    assert "names stay" not in plots.describe("atoms", made_up(feature_names=tuple("abcd")))
    assert "over the clients" not in plots.describe("usage", made_up(usage={"a": np.array([0.5, 0.4])}))


def test_a_hundred_clients_stay_legible():
    clients = {f"client-{i}": {"final_shared": 0.5, "final_own": 0.4} for i in range(100)}
    result = made_up(usage={name: np.array([0.5, 0.4]) for name in clients})
    result = dataclasses.replace(result, summary={"clients": clients, "n_global": 1})
    result = dataclasses.replace(result, metrics=[{"round": 1, "client": name} for name in clients])
    for name in ("variance", "usage", "participation"):
        assert "Of 100 clients the 40 with the " in plots.describe(name, result)
        assert getattr(plots, name)(result).get_figheight() < 10


def test_colours_differ_in_grey_and_by_hatch():
    grey = [float(np.dot(to_rgb(colour), [0.299, 0.587, 0.114])) for colour in (SHARED, OWN, REST)]
    assert np.diff(grey).min() > 0.2
    assert len(set(HATCH.values())) == 3


def test_the_same_run_gives_the_same_bytes(run):
    first = {path: path.read_bytes() for path in plots.draw_figures(run.folder)}
    assert {path.stem for path in first} == {*RUN, "own_atoms"}
    assert {path.suffix for path in first} == {".png", ".svg"}
    assert {path: path.read_bytes() for path in plots.draw_figures(str(run.folder))} == first
    for path, data in first.items():
        assert data.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")


def test_what_cannot_be_drawn_says_why(run, model, tmp_path):
    with pytest.raises(PerdlError, match="only a run's folder says who answered which round"):
        plots.participation(model)
    with pytest.raises(PerdlError, match="there is no client eve; there are client-1"):
        plots.atoms(run, "eve")
    with pytest.raises(PerdlError, match="no round was done"):
        plots.convergence(made_up())
    with pytest.raises(PerdlError, match=r"there is no figure 'x'; there are convergence"):
        plots.describe("x", run)
    with pytest.raises(PerdlError, match=r"holds no summary.json"):
        plots.atoms(tmp_path)
    with pytest.raises(PerdlError, match="a list cannot be drawn"):
        plots.atoms([1])
    assert [path.stem for path in plots.draw_figures(run.folder / "clients" / "client-1", ["png"])] == [
        "atoms",
        "own_atoms",
        "usage",
    ]


def test_a_name_that_no_font_has_is_drawn_without_a_word():
    result = made_up(metrics=[{"round": 1, "client": "猫 $\\frac{1"}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "猫" in to_svg(plots.participation(result))


def test_importing_plots_imports_no_matplotlib():
    slow = "{'matplotlib', 'jinja2', 'starlette', 'uvicorn'}"
    light = "perdl.plots, perdl.report.page, perdl.monitoring.dashboard, perdl.cli.app"
    code = f"import sys, {light}; print({slow} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_result_is_taken_as_it_is(run):
    result = as_result(run.folder)
    assert as_result(result) is result


def search_of(*trials, chosen=0):
    """A search: of each trial its settings, its number of shared atoms, and the errors of clients a and b."""
    rows = [
        {
            "group": "shared atoms",
            "values": values,
            "n_global": n_global,
            "errors": dict(zip("ab", errors, strict=False)),
            "failed": "" if errors else "a has 3 usable atoms",
        }
        for values, n_global, errors in trials
    ]
    return {"chosen": chosen, "trials": rows}


SEARCHED = search_of(
    ({"n_atoms": 4}, 1, [0.9, 0.9]),
    ({"n_atoms": 8}, 3, [0.4, 0.1]),
    ({"n_atoms": 8, "n_global": 0}, 0, [0.5, 0.2]),
    ({"n_atoms": 8, "n_global": 2}, 2, [0.36, 0.1]),
    ({"n_atoms": 8, "n_global": 6}, 0, []),
    ({"n_atoms": 8, "n_global": 2, "aggregation": "mean"}, 2, [0.3, 0.1]),
)


def test_the_curve_over_shared_atoms_has_the_trials_that_differ_in_nothing_else():
    result = made_up(search=SEARCHED)
    axes = plots.shared_atoms(result).axes[0]
    curve, auto, this, alone = axes.lines
    np.testing.assert_allclose(curve.get_xdata(), [0, 2, 3])
    np.testing.assert_allclose(curve.get_ydata(), np.sqrt([0.5 * 0.2, 0.36 * 0.1, 0.4 * 0.1]))
    np.testing.assert_allclose(np.ravel(auto.get_data()), [3, 0.2])
    assert this.get_xdata() == [1, 1]  # the number that the run had
    np.testing.assert_allclose(alone.get_ydata(), np.sqrt(0.1))
    words = plots.describe("shared_atoms", result)
    assert "least with 2 shared atoms (0.190, 40 % lower than with none). auto took 3 (0.200)." in words
    assert "1 number could not be tried: a has 3 usable atoms." in words
    assert [row["shared atoms"] for row in FIGURES["shared_atoms"].numbers(result, None)] == ["0", "2", "3"]


def test_without_a_search_or_with_one_number_there_is_no_curve_and_a_reason(run):
    with pytest.raises(PerdlError, match="no search tried other numbers: perdl tune does"):
        plots.shared_atoms(run)
    for search in (search_of(({}, 1, [0.5, 0.5])), search_of(({"n_global": 2}, 2, [0.5, 0.5]))):
        with pytest.raises(PerdlError, match="did not try several numbers"):
            plots.shared_atoms(made_up(search=search))
