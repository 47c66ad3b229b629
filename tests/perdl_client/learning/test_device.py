"""A client that computes on torch's arrays learns what it learns with numpy. CPU tensors; no other device was tried."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from common import blocks
from common.aggregations import AGGREGATIONS
from common.blocks import Stream
from common.coders import HardThreshold, TopK
from common.errors import FederationError, SettingsError
from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.settings import override_settings, settings_from_values
from perdl import PerDL
from perdl.engines.in_process import run_in_process
from perdl.results.run_result import read_run
from perdl_client.app import app as client_app
from perdl_client.data.memory import Memory
from perdl_client.learning import device as module
from perdl_client.learning import sweep as sweeping
from perdl_client.learning.alignment import retract
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.device import CPU, Device, why_on_host
from perdl_client.learning.initialization import first_dictionary
from perdl_client.learning.local_update import local_update, refine_local_dictionary
from perdl_client.learning.restart import restart_local_dictionary
from perdl_client.learning.sweep import sweep
from perdl_client.learning.warm_up import best_warm_up, objective
from perdl_client.node.runner import node_config
from perdl_server.app import app as server_app

torch = pytest.importorskip("torch", reason="torch is not installed (extra: gpu)")
pytest.importorskip("array_api_compat", reason="array-api-compat is not installed (extra: gpu)")

BY_SUMS = [name for name, learner in LEARNERS.items() if learner.of_sums is not None]
CODERS = [HardThreshold(0.6), TopK(3)]
TYPES = ["f8", "f4"]
D, R_G, R_L, N = 12, 4, 5, 700
TOLERANCE = {"f8": 1e-9, "f4": 2e-3}


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch):
    """Let no torch array become numpy's unasked: on a device that fails, on the CPU it would pass unseen."""

    def refuse(self, *args, **kwargs):
        raise TypeError("can't convert device type tensor to numpy")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)


def samples(seed=0, dtype="f8", n=N):
    rng = np.random.default_rng(seed)
    atoms = np.linalg.qr(rng.standard_normal((D, D))).Q
    Y = atoms @ (rng.standard_normal((D, n)) * (rng.random((D, n)) < 0.3)) + 0.05 * rng.standard_normal((D, n))
    near = np.linalg.qr(atoms + 0.1 * rng.standard_normal((D, D))).Q
    return Y.astype(dtype), near[:, :R_G].astype(dtype), near[:, R_G : R_G + R_L].astype(dtype)


def alike(found, wanted, tolerance):
    for field in fields(wanted):
        a, b = getattr(found, field.name), getattr(wanted, field.name)
        if b is None:
            assert a is None
            continue
        assert isinstance(a, type(b)), field.name
        assert np.asarray(a).dtype == np.asarray(b).dtype, field.name
        np.testing.assert_allclose(a, b, tolerance, tolerance * np.abs(b).max(initial=0), err_msg=field.name)


@pytest.fixture
def device():
    return Device("torch")


@pytest.fixture
def all_on_device(monkeypatch):
    """Small matrices are decomposed on the device too."""
    monkeypatch.setattr(module, "_LARGE", 0)


@pytest.mark.parametrize("kind", ["orthonormal", "any"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("n", [N, 3, 0])
def test_sweeps(device, coder, dtype, kind, n, monkeypatch):
    monkeypatch.setattr(sweeping, "_BLOCK", 0)  # several blocks
    Y, D_g, D_l = samples(dtype=dtype, n=n)
    atoms = np.hstack([D_g, D_l if kind == "orthonormal" else D_l + D_g[:, :1]])
    wanted = sweep(Y, atoms, coder, second_moment=True)
    alike(sweep(Y, atoms, coder, second_moment=True, device=device), wanted, 1e-12 if dtype == "f8" else 1e-3)
    assert sweep(Y, atoms, coder, device=device).second_moment is None


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-7])
def test_an_error_near_rounding_is_exact(device, noise):
    rng = np.random.default_rng(1)
    atoms, X = np.linalg.qr(rng.standard_normal((D, 9))).Q, rng.random((9, N)) + 1
    Y = atoms @ X + noise * rng.standard_normal((D, N))
    rest = np.linalg.norm(Y - atoms @ HardThreshold(0.5)(Y, atoms))
    assert sweep(Y, atoms, HardThreshold(0.5), device=device).misfit ** 0.5 == pytest.approx(rest, rel=1e-4, abs=1e-13)


@pytest.mark.parametrize(
    ("learner", "coder", "dtype", "least", "n"),
    list(itertools.product(BY_SUMS, CODERS, TYPES, (None, 5), (N, 6, 0))),
    ids=str,
)
@pytest.mark.usefixtures("all_on_device")
def test_updates(device, learner, coder, dtype, least, n):
    """With six samples the guard lets few atoms through: then numpy computes."""
    Y, D_g, D_l = samples(dtype=dtype, n=n)
    told = (Y, D_g, D_l, LEARNERS[learner], coder)
    tolerance = TOLERANCE[dtype] if n == N else 1e-6 if dtype == "f8" else 2e-2
    alike(local_update(*told, min_samples=least, device=device), local_update(*told, min_samples=least), tolerance)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("learner", BY_SUMS)
@pytest.mark.usefixtures("all_on_device")
def test_refinements(device, learner, stream, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS", 3000)
    Y, D_g, D_l = samples()
    if stream:
        Y = Stream(Y.shape, Y.dtype, lambda i, j, Y=Y: Y[:, i:j].copy())
    told = (Y, D_g, D_l, LEARNERS[learner], HardThreshold(0.6), 3)
    np.testing.assert_allclose(
        refine_local_dictionary(*told, device=device), refine_local_dictionary(*told), atol=1e-10
    )


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.usefixtures("all_on_device")
def test_own_atoms_are_moved_off_the_shared_ones(device, inside):
    """An atom inside their span is completed, in one of many ways."""
    _, D_g, D_l = samples()
    if inside:
        D_l[:, 0] = D_g[:, 0]
    found = device.run(retract, D_g, D_l)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found.T @ np.hstack([D_g, found]), np.eye(R_L, R_G + R_L, R_G), atol=1e-12)
    np.testing.assert_allclose(found[:, inside:], retract(D_g, D_l)[:, inside:], atol=1e-9)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("learner", BY_SUMS)
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_starts(device, learner, coder, dtype):
    Y, *_ = samples(dtype=dtype)

    def start(where):
        rng = np.random.default_rng(3)
        return best_warm_up(Y, 9, LEARNERS[learner], coder, rng, n_restarts=4, n_steps=15, device=where)

    wanted, found = start(CPU), start(device)
    assert type(found) is np.ndarray
    assert found.dtype == wanted.dtype
    if dtype == "f8":
        np.testing.assert_allclose(found, wanted, atol=1e-8)
    # In single precision a code at the threshold may fall to the other side, so the end is as good, not the same.
    assert objective(Y, found, coder, device) == pytest.approx(objective(Y, wanted, coder), rel=1e-2)


@pytest.mark.parametrize("start", ["warm-up", "l4", "svd", "samples", "random", "identity"])
@pytest.mark.parametrize("least", [None, 5])
@pytest.mark.parametrize("learner", ["orthogonal", "gradient"])
def test_first_dictionaries(device, start, least, learner):
    if start == "samples" and (least or learner == "orthogonal"):
        pytest.skip("not allowed")
    Y, *_ = samples()
    learning = LearningSettings(n_atoms=9, start=start, learner=learner, warmup_steps=10, n_restarts=3)
    wanted = first_dictionary(Y, learning, 0, "ada", min_samples=least)
    np.testing.assert_allclose(
        first_dictionary(Y, learning, 0, "ada", min_samples=least, device=device), wanted, atol=1e-8
    )


def test_a_restart_finds_the_same(device):
    Y, D_g, _ = samples()
    D_l = np.linalg.qr(np.hstack([D_g, np.random.default_rng(9).standard_normal((D, R_L))])).Q[:, R_G:]
    learning = LearningSettings(threshold=0.6, local_restarts=3)
    found = [
        restart_local_dictionary(Y, D_g, D_l, learning, np.random.default_rng(1), where) for where in (CPU, device)
    ]
    assert found[0] is not None
    np.testing.assert_allclose(found[1], found[0], atol=1e-8)


def test_samples_go_to_the_device_once(device):
    Y, *_ = samples()
    placed = device.samples(Y)
    assert device.samples(Y) is placed
    other = Y.copy()
    assert device.samples(other) is not placed
    assert device.put(placed) is placed
    assert CPU.samples(Y) is Y
    assert CPU.put(Y) is Y


@pytest.mark.parametrize("change", ["read-only", "reversed", "columns", "strided"])
def test_samples_of_any_layout(device, change):
    Y, D_g, D_l = samples()
    Y = {"reversed": Y[::-1, ::-1], "columns": np.asfortranarray(Y), "strided": Y[:, ::2]}.get(change, Y)
    Y.flags.writeable = change != "read-only"
    atoms = np.hstack([D_g, D_l])
    alike(sweep(Y, atoms, TopK(3), device=device), sweep(Y, atoms, TopK(3)), 1e-12)


def test_a_stream_gives_what_its_array_gives(device, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS", 3000)
    Y, D_g, D_l = samples()
    parts = []

    def read(i, j):
        parts.append(j - i)
        return Y[:, i:j].copy()

    learning = LearningSettings(threshold=0.6)
    one, other = (
        ClientLearner(data, learning, 0, "ada", dictionary=D_l, guarded=True, device=device)
        for data in (Y, Stream(Y.shape, Y.dtype, read))
    )
    alike(other.update(D_g, 1), one.update(D_g, 1), 1e-9)
    assert max(parts) < N


def runs(*places, **changes):
    """Return a client's dictionaries after its start and three updates, on each place."""
    Y, *_ = samples()
    if changes.pop("missing", False):
        Y[0, :3] = np.nan
    learning = LearningSettings(n_atoms=9, warmup_steps=5, n_restarts=2, **changes)
    clients = [ClientLearner(Y, learning, 0, "ada", device=where) for where in places]
    found = []
    for client in clients:
        client.start()
        client.split(np.arange(R_G))
        D_g = np.linalg.qr(samples()[1]).Q
        for t in (1, 2, 3):
            D_g = client.update(D_g, t).global_dictionary
        found.append(np.hstack([D_g, client.dictionary]))
    return clients[-1], found


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"coder": "omp"}, 'coder = "omp"'),
        ({"coder": "omp-threshold", "threshold": 0.6}, 'coder = "omp-threshold"'),
        ({"learner": "projected"}, 'learner = "projected"'),
        ({"learner": "online"}, 'learner = "online"'),
        ({"outliers": "mask"}, 'outliers = "mask"'),
        ({"missing": True}, "missing values"),
    ],
    ids=str,
)
def test_what_numpy_alone_can_do_is_left_to_numpy(device, changes, why):
    client, (wanted, found) = runs(CPU, device, **changes)
    assert client.not_on_device == why
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("learner", BY_SUMS)
@pytest.mark.parametrize("coder", ["hard-threshold", "top-k"])
def test_what_else_it_can(device, learner, coder):
    client, (wanted, found) = runs(CPU, device, learner=learner, coder=coder, refine_steps=1, local_steps=2)
    assert client.not_on_device == ""
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_noisy_sums_are_numpys():
    assert why_on_host(LearningSettings(), private=True) == 'privacy = "private"'


@pytest.mark.parametrize("learner", ["orthogonal", "coordinate"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_whole_run_gives_the_same_dictionaries(tmp_path, aggregation, learner):
    if AGGREGATIONS[aggregation].contribution == "procrustes" and learner != "orthogonal":
        pytest.skip("not allowed")
    one, other = (
        run(tmp_path / name, aggregation=aggregation, learner=learner, device=name) for name in ("cpu", "torch")
    )
    np.testing.assert_allclose(other.global_dictionary, one.global_dictionary, atol=1e-8)
    assert list(one.local_dictionaries) == ["client-1", "client-2", "client-3"]
    for name in one.local_dictionaries:
        np.testing.assert_allclose(other.local_dictionaries[name], one.local_dictionaries[name], atol=1e-8)


def run(folder, **changes):
    settings = override_settings(settings_from_values({"n_clients": 3, "rounds": 5, "n_restarts": 3}), changes)
    settings = override_settings(settings, {"synthetic.noise": 0.05, "warmup_steps": 10, "output": str(folder)})
    run_in_process(server_app, client_app, settings)
    return read_run(folder)


def test_an_estimator_passes_it_on():
    Y, *_ = samples()
    one, other = (
        PerDL(n_global=2, n_atoms=9, n_restarts=2, rounds=3, device=name).fit({"a": Y.T[:350], "b": Y.T[350:]})
        for name in ("cpu", "torch")
    )
    np.testing.assert_allclose(other.global_components_, one.global_components_, atol=1e-8)


def without(monkeypatch, package):
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("package", ["torch", "array_api_compat"])
def test_without_its_packages_it_is_refused(monkeypatch, package):
    without(monkeypatch, package)
    with pytest.raises(SettingsError) as told:
        Device("cuda", client="ada")
    assert str(told.value) == (
        f'ada: device = "cuda": needs {package}, which is not installed: pip install "perdl[gpu]", or set device, or '
        "the client's own --device, to cpu"
    )


def test_a_run_without_torch_is_refused_in_one_line(monkeypatch, tmp_path):
    without(monkeypatch, "torch")
    with pytest.raises(FederationError, match=r'client-1: device = "torch": needs torch, which is not installed'):
        run(tmp_path, device="torch")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has such a device")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "xpu", "mps"])
def test_a_device_that_is_not_there_is_refused(name, tmp_path):
    with pytest.raises(SettingsError, match=f'^ada: device = "{name}": is not there, by torch .*, to cpu$'):
        Device(name, "float32", "ada")
    with pytest.raises(SettingsError, match="is not there"):  # before the data are read
        node_config("ada", tmp_path / "none.npy", "rows", None, tmp_path, overrides=[f"device={name}"])


def test_what_else_is_there_is_told(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "empty", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("invalid ordinal")))
    with pytest.raises(SettingsError, match=r"to cpu or cuda:0 or cuda:1$"):
        Device("cuda:7")


def test_apples_devices_have_no_double_precision():
    with pytest.raises(SettingsError, match=r'device = "mps": has no double precision: set dtype = "float32"'):
        Device("mps", "float64", "ada")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "torch:0", ""])
def test_no_other_names_are_taken(name):
    with pytest.raises(SettingsError, match=r"device: must be cpu, cuda, cuda:1, mps, xpu, xpu:1 or torch, and is"):
        settings_from_values({"device": name})


def test_a_memory_keeps_its_device():
    memory = Memory()
    assert memory.device("cpu", "float64", "ada") is CPU
    one = memory.device("torch", "float64", "ada")
    assert memory.device("torch", "float64", "ada") is one
    assert memory.device("torch", "float32", "ada") is not one
    memory.clear()
    assert memory._device is CPU


def test_with_numpy_nothing_imports_torch(tmp_path):
    code = (
        "import sys, perdl, perdl_client.node.runner\n"
        f"perdl.simulate('synthetic', settings={{'rounds': 1, 'n_clients': 2}}, output={str(tmp_path / 'run')!r})\n"
        "print(*[m for m in ('torch', 'array_api_compat') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert told.stdout.splitlines()[-1] == "", told.stderr
