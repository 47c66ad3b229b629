"""Claims of the settings: every mistake is one line that names key, value and what is allowed; nothing is lost."""

import json

import pytest

from common.coders import OMP, HardThreshold, TopK
from common.errors import SettingsError
from common.settings import Settings, learning_overrides, load_settings, settings_from_flat, settings_from_values


def message(*overrides, path=None):
    with pytest.raises(SettingsError) as caught:
        load_settings(path, overrides)
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    assert caught.value.exit_code == 2
    return text


# Mistakes


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("n_clients=0", "n_clients = 0: must be a whole number, at least 1"),
        ('n_clients="10"', "n_clients = '10': must be a whole number, at least 1"),
        ("n_global=-1", 'n_global = -1: must be 0 or more, or "auto"'),
        ("n_global=x", "n_global = 'x': must be a whole number or \"auto\""),
        ("n_global=2.5", 'n_global = 2.5: must be a whole number or "auto"'),
        ("n_global=true", 'n_global = True: must be a whole number or "auto"'),
        ("n_global=7", "n_global = 7: must be at most n_atoms = 6"),
        ("n_atoms=2", "n_global = 3: must be at most n_atoms = 2"),
        ("n_atoms=0", "n_atoms = 0: must be a whole number, at least 1"),
        ("n_atoms=7", "n_atoms = 7: must be at most synthetic.n_features = 6 for the orthogonal learner"),
        ("rounds=-1", "rounds = -1: must be a whole number, at least 0"),
        ("seed=-1", "seed = -1: must be a whole number, at least 0, less than 9223372036854775808"),
        ("seed=1.0", "seed = 1.0: must be a whole number, at least 0, less than 9223372036854775808"),
        ("threshold=-1", "threshold = -1: must be a number, at least 0"),
        ("threshold=nan", "threshold = nan: must be a number, at least 0"),
        ("threshold=inf", "threshold = inf: must be a number, at least 0"),
        ("threshold=-inf", "threshold = -inf: must be a number, at least 0"),
        ("threshold=true", "threshold = True: must be a number, at least 0"),
        ("step_size=0", "step_size = 0: must be a number, more than 0, less than 2"),
        ("step_size=2.0", "step_size = 2.0: must be a number, more than 0, less than 2"),
        ("tolerance=-1e-3", "tolerance = -0.001: must be a number, at least 0"),
        ("tolerance=nan", "tolerance = nan: must be a number, at least 0"),
        ("min_usage=1", "min_usage = 1: must be a number, at least 0, less than 1"),
        ("trim=0.5", "trim = 0.5: must be a number, at least 0, less than 0.5"),
        ("join_timeout=0", "join_timeout = 0: must be a number, more than 0"),
        ("round_timeout=inf", "round_timeout = inf: must be a number, more than 0"),
        ("quorum=11", "quorum = 11: must be at most n_clients = 10"),
        ("quorum=0", "quorum = 0: must be a whole number, at least 1"),
        ("learner=sgd", "learner = 'sgd': must be 'orthogonal', 'gradient', 'projected', 'coordinate' or 'online'"),
        ("coder=topk", "coder = 'topk': must be 'hard-threshold', 'top-k', 'omp', 'ols' or 'omp-threshold'"),
        ("dtype=float16", "dtype = 'float16': must be 'float64' or 'float32'"),
        ("data.source=mnis", "data.source = 'mnis': must be 'synthetic', 'mnist', 'files', 'video' or 'memory'"),
        ("data.samples_in=cols", "data.samples_in = 'cols': must be 'rows' or 'columns'"),
        ("data.majority=2", "data.majority = 2: must be a number, at least 0, at most 1"),
        ("data.path=3", "data.path = 3: must be text"),
        ("evaluation.n_test=20000", "evaluation.n_test = 20000: must be a whole number, at least 1, at most 10000"),
        ("synthetic.noise=-0.1", "synthetic.noise = -0.1: must be a number, at least 0"),
        ("synthetic.n_global=4", "synthetic: n_global + n_local = 7: must be at most n_features = 6"),
        ("synthetic.sparsity=0", "synthetic.sparsity = 0: must be a number, more than 0, at most 1"),
        ("clients.a.threshold=-1", "clients.a: threshold = -1: must be a number, at least 0"),
        ("clients.a.n_atoms=2", "n_global = 3: must be at most n_atoms = 2 (clients.a)"),
        ("clients.a.n_atms=2", "clients.a: n_atms = 2: unknown setting; did you mean n_atoms?"),
        ("n_globl=3", "n_globl = 3: unknown setting; did you mean n_global?"),
        ("thresold=3", "thresold = 3: unknown setting; did you mean threshold?"),
        ("n_global", '"n_global" is not an override: write key=value, for example n_global=3'),
        ("=3", '"=3" is not an override: write key=value, for example n_global=3'),
        ("", '"" is not an override: write key=value, for example n_global=3'),
    ],
)
def test_a_mistake_is_one_line_with_key_value_and_range(override, text):
    assert message(override) == text


@pytest.mark.parametrize(
    "aggregation", ["mean", "normalized", "polar", "energy", "procrustes", "trimmed", "geometric-median"]
)
def test_unknown_choices_list_what_there_is(aggregation):
    assert repr(aggregation) in message("aggregation=median")
    assert load_settings(overrides=[f"aggregation={aggregation}"]).aggregation == aggregation


def test_unknown_keys_near_to_nothing_list_what_is_known():
    text = message("zzz=1")
    assert text.startswith("zzz = 1: unknown setting; known are ")
    assert set(text.split("known are ")[1].split(", ")) == set(Settings.model_fields)


def test_an_unknown_key_inside_a_table_is_named_with_its_table():
    text = message("data.sorce=mnist")
    assert text.startswith("data.sorce = 'mnist': unknown setting; did you mean ")
    assert "source?" in text


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["coder=omp", "n_atoms=4"], "n_nonzero = 5: must be at most n_atoms = 4"),
        (["coder=top-k", "n_atoms=4"], "n_nonzero = 5: must be at most n_atoms = 4"),
        (
            ["clients.a.coder=top-k", "clients.a.n_nonzero=9", "n_atoms=6"],
            "clients.a: n_nonzero = 9: must be at most n_atoms = 6",
        ),
        (
            ["aggregation=procrustes", "learner=gradient"],
            'learner = "gradient": must be "orthogonal" where aggregation = "procrustes", which needs every client\'s '
            "polar decomposition",
        ),
        (
            ["aggregation=procrustes", "clients.b.learner=projected"],
            'learner = "projected" (clients.b): must be "orthogonal" where aggregation = "procrustes", which needs '
            "every client's polar decomposition",
        ),
        (
            ["aggregation=polar", "n_atoms=9", "n_global=8", "learner=gradient"],
            'n_global = 8: must be at most 6 features for "polar"',
        ),
        (["data=1", "data.source=files"], "data.source: data is not a table"),
    ],
)
def test_settings_that_do_not_go_together_are_named(overrides, text):
    assert message(*overrides) == text


def test_several_mistakes_are_counted():
    assert message("threshold=-1", "step_size=9").endswith("(and 1 more)")
    assert message("threshold=-1", "step_size=9", "rounds=-1", "data.majority=2").endswith("(and 3 more)")


@pytest.mark.parametrize(
    ("override", "parts", "never"),
    [
        ("clients.a.threshold=nan", ["clients.a", "threshold = nan", "a number"], ["dict"]),
        ("clients.a.threshold=inf", ["clients.a", "threshold = inf", "a number"], ["dict"]),
        ("clients=3", ["clients = 3", "table"], ["dict"]),
        ("clients.a=3", ["clients.a", "table"], ["clients.:"]),
        ("data=3", ["data = 3", "table"], ["dictionary", "DataSettings"]),
        ("output=", ["output = ''", "empty"], ["must be text"]),
    ],
)
def test_tables_clients_and_empty_text_are_spoken_of_in_the_users_words(override, parts, never):
    text = message(override)
    assert all(part in text for part in parts), text
    assert not any(part in text for part in never), text


def test_a_coder_that_takes_more_atoms_than_there_are_is_refused_with_default_n_atoms_too():
    text = message("coder=omp", "n_nonzero=7")
    assert "n_nonzero = 7" in text
    assert "6" in text


def test_a_second_line_in_an_override_is_not_dropped():
    message("n_global=1\nrounds=2")
    message("a\nb")


# Overrides


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("n_global=2", lambda s: s.n_global == 2),
        ("  n_global  =  2 ", lambda s: s.n_global == 2),
        ("n_global=auto", lambda s: s.n_global == "auto"),
        ('n_global="auto"', lambda s: s.n_global == "auto"),
        ("n_global='auto'", lambda s: s.n_global == "auto"),
        ("n_restarts=1_000", lambda s: s.n_restarts == 1000),
        ("threshold=1", lambda s: s.threshold == 1.0 and type(s.threshold) is float),
        ("threshold=1e-3", lambda s: s.threshold == 1e-3),
        ("output=a b/c", lambda s: s.output == "a b/c"),
        ("output=x=y", lambda s: s.output == "x=y"),
        ("output='3'", lambda s: s.output == "3"),
        ("output=2026-11-28", lambda s: s.output == "2026-11-28"),
        ("output=/srv/clinic #1/*.csv", lambda s: s.output == "/srv/clinic #1/*.csv"),
        ("clients.a.learner=gradient", lambda s: s.clients == {"a": {"learner": "gradient"}}),
        ("clients.site.b.n_atoms=5", lambda s: s.clients == {"site.b": {"n_atoms": 5}}),
    ],
)
def test_every_form_of_override(override, read):
    assert read(load_settings(overrides=[override]))


def test_later_overrides_win_and_overrides_win_over_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('n_global = 1\nrounds = 7\n[data]\nsource = "files"\npath = "here"\n[clients.a]\nthreshold = 0.3\n')
    settings = load_settings(path, ["n_global=2", "data.path=there", "n_global=4", "clients.a.n_atoms=9"])
    assert (settings.n_global, settings.rounds, settings.data.source, settings.data.path) == (4, 7, "files", "there")
    assert settings.clients == {"a": {"threshold": 0.3, "n_atoms": 9}}


# Files


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert message(path=tmp_path / "no.toml") == (
        f"cannot read the configuration {tmp_path / 'no.toml'}: No such file or directory"
    )
    assert message(path=tmp_path).startswith(f"cannot read the configuration {tmp_path}: ")


@pytest.mark.parametrize(
    "content", [b"n_global = ", b"n_global = 3\nn_global = 4", b"\xff\xfe", b"[data", b"n_global 3", b"[data]\n[data]"]
)
def test_a_file_that_is_not_toml_is_named(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    assert message(path=path).startswith(f"{path} is not valid TOML: ")


def test_a_mistake_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[synthetic]\nnoise = -1\n")
    assert message(path=path) == f"{path}: synthetic.noise = -1: must be a number, at least 0"


def test_an_empty_file_gives_the_defaults(tmp_path):
    (tmp_path / "run.toml").write_text("")
    assert load_settings(tmp_path / "run.toml") == Settings() == load_settings()


# Round trips


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [
            "n_global=auto",
            "n_atoms=5",
            "quorum=3",
            "threshold=0.1",
            "data.source=files",
            "data.path=x",
            "data.n_samples=3",
        ],
        [
            "clients.a.learner=gradient",
            "clients.b-2.n_atoms=5",
            "clients.site.c.threshold=1.5",
            "clients.site.c.coder=omp",
        ],
    ],
)
def test_flat_settings_come_back_equal(overrides):
    settings = load_settings(overrides=overrides)
    flat = settings.flat()
    assert all(type(value) in (bool, int, float, str) for value in flat.values())
    assert all(type(key) is str for key in flat)
    assert settings_from_flat(flat) == settings
    assert settings_from_values(settings.model_dump()) == settings
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_flat_names_are_those_of_overrides():
    flat = load_settings(overrides=["clients.a.n_atoms=5"]).flat()
    assert flat["data.source"] == "synthetic"
    assert flat["synthetic.n_features"] == 6
    assert flat["clients.a.n_atoms"] == 5
    assert "quorum" not in flat
    rebuilt = load_settings(overrides=[f"{key}={json.dumps(value)}" for key, value in flat.items()])
    assert rebuilt == load_settings(overrides=["clients.a.n_atoms=5"])


def test_empty_text_in_a_flat_configuration_stands_for_not_set():
    assert settings_from_flat({"quorum": "", "data.path": "", "n_atoms": "", "rounds": 3}) == Settings(rounds=3)


# Clients


def test_a_client_may_override_learning_settings_alone():
    assert learning_overrides(["threshold=0.3", "learner = gradient"]) == {"threshold": 0.3, "learner": "gradient"}
    for override, text in (
        ("n_global=3", "n_global = 3: is a setting of the whole run; those of one client are "),
        ("threshold=-1", "threshold = -1: must be a number, at least 0"),
        ("threshold", '"threshold" is not an override: write key=value'),
    ):
        with pytest.raises(SettingsError) as caught:
            learning_overrides([override])
        assert str(caught.value).startswith(text)


def test_a_client_takes_its_own_word_over_its_table_over_the_run():
    settings = load_settings(
        overrides=["threshold=0.1", "n_nonzero=2", "clients.a.threshold=0.2", "clients.a.start=svd"]
    )
    assert settings.for_client("b").threshold == 0.1
    one = settings.for_client("a")
    assert (one.threshold, one.start, one.n_nonzero) == (0.2, "svd", 2)
    own = settings.for_client("a", {"threshold": 0.3})
    assert (own.threshold, own.start) == (0.3, "svd")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"threshold": float("nan")}, "clients.a: threshold = nan: must be a number, at least 0"),
        (
            {"learner": "sgd"},
            "clients.a: learner = 'sgd': must be 'orthogonal', 'gradient', 'projected', 'coordinate' or 'online'",
        ),
        ({"seed": 3}, "clients.a: seed = 3: is a setting of the whole run; "),
        ({"coder": "omp", "n_atoms": 3}, "clients.a: n_nonzero = 5: must be at most n_atoms = 3"),
    ],
)
def test_what_a_client_was_told_is_checked_too(own, text):
    with pytest.raises(SettingsError) as caught:
        Settings().for_client("a", own)
    assert str(caught.value).startswith(text)


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().n_global = 4


@pytest.mark.parametrize(
    ("overrides", "rms", "coder"),
    [
        ([], 7.0, HardThreshold(0.15)),
        (["threshold_unit=rms", "threshold=0.5"], 7.0, HardThreshold(3.5)),
        (["coder=top-k", "n_nonzero=4"], 7.0, TopK(4)),
        (["coder=omp"], 7.0, OMP(5)),
    ],
)
def test_the_coder_is_the_one_named(overrides, rms, coder):
    assert load_settings(overrides=overrides).make_coder(rms) == coder
