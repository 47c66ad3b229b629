from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import kstest, kurtosis

from common.errors import SettingsError
from common.mask import LENGTH, Mask, fingerprint, read_secret
from perdl.deploy.certs import make_secret

SECRET, OTHER = bytes(range(LENGTH)), bytes(LENGTH)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 64, 785])
def test_it_is_an_orthogonal_matrix(d):
    Q = Mask(SECRET, "run", d).hide(np.eye(d))
    np.testing.assert_allclose(Q.T @ Q, np.eye(d), atol=1e-13)
    D = np.random.default_rng(0).standard_normal((d, 4))
    np.testing.assert_allclose(Mask(SECRET, "run", d).hide(D), Q @ D, atol=1e-12)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-14), ("float32", 1e-5)])
@pytest.mark.parametrize("shape", [(1, 1), (6, 3), (100, 0), (784, 30)])
def test_what_is_shown_is_what_was_hidden(dtype, atol, shape):
    D, mask = np.random.default_rng(1).standard_normal(shape).astype(dtype), Mask(SECRET, "run", shape[0])
    hidden = mask.hide(D)
    assert hidden.dtype == dtype
    assert hidden.shape == shape
    shown = mask.show(hidden)
    assert shown.dtype == dtype
    np.testing.assert_allclose(shown, D, atol=atol)


@pytest.mark.parametrize("d", [64, 784])
def test_an_atom_on_one_feature_looks_like_noise(d):
    """The worst case: one factor alone would leave a cosine. Its entries are those of a random direction."""
    Q = Mask(SECRET, "run", d).hide(np.eye(d)) * np.sqrt(d)
    # An exact oracle: Q drawn from the uniform distribution of orthogonal matrices.
    random = np.linalg.qr(np.random.default_rng(2).standard_normal((d, d))).Q * np.sqrt(d)
    assert abs(kurtosis(Q, axis=None)) < 5 * np.sqrt(24 / d**2) + 0.05
    assert np.abs(Q).max() < 1.2 * np.abs(random).max()
    assert kstest(Q[:, 0], "norm").pvalue > 1e-3


def test_secrets_runs_and_sizes_have_coordinates_of_their_own():
    d = 200
    D = np.random.default_rng(3).standard_normal((d, 1)) / np.sqrt(d)
    seen = [Mask(secret, run, d).hide(D) for secret in (SECRET, OTHER) for run in ("one", "two")]
    seen.append(D)
    cosines = [abs(float(a.ravel() @ b.ravel())) for a, b in itertools.combinations(seen, 2)]
    assert max(cosines) < 5 / np.sqrt(d)  # five standard deviations of the cosine of unrelated directions
    marks = {fingerprint(secret, run) for secret in (SECRET, OTHER) for run in ("one", "two")}
    assert len(marks) == 4


def test_the_same_secret_and_run_have_the_same_coordinates_for_ever():
    """Clients of different releases must agree: another result here is another protocol."""
    assert fingerprint(SECRET, "run") == "e1cae0f85316406d"
    np.testing.assert_allclose(
        Mask(SECRET, "run", 3).hide(np.eye(3, 1)).ravel(), [0.21099772, -0.47140452, 0.8563047], atol=1e-8
    )


def test_a_secret_is_made_once_for_its_user_and_never_in_the_servers_folder(tmp_path):
    path, server = tmp_path / "clients.secret", tmp_path / "server"
    make_secret(path, server)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(set(read_secret(path))) > 8
    with pytest.raises(SettingsError, match="is there already"):
        make_secret(path, server)
    with pytest.raises(SettingsError, match="the server must not have it"):
        make_secret(server / "secret", server)
    make_secret(tmp_path / "another", server)
    assert read_secret(tmp_path / "another") != read_secret(path)


@pytest.mark.parametrize("content", [b"", b"abc", b"00" * 31, b"\xff\xfe", b"zz" * 32, b"0" * 10**6])
def test_a_file_without_a_secret_is_named(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SettingsError, match="holds no secret"):
        read_secret(tmp_path / "file")
    with pytest.raises(SettingsError, match="cannot read the secret"):
        read_secret(tmp_path / "nowhere")
