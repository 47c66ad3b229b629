"""A client's own terms: what a server may ask of it. They are held before any work.

A client that takes part in a simulation holds to none: there one owner has all the data.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from common.aggregations import AGGREGATIONS
from common.coders import CODERS
from common.data_settings import SettingsTable
from common.errors import SettingsError
from common.learners import LEARNERS
from common.learning_settings import MIN_SAMPLES, LearningSettings
from common.privacy_settings import Mode
from common.registered import NameIn
from common.settings import Settings
from common.settings_errors import first_error, toml_error
from perdl_client.learning.subset import at_most

_CURE = "or let the client's owner change `{term}` in its terms (perdl client --terms FILE)"
_FLOPS = 2e9
"""Operations a second that one thread does at least."""

_GIB = 2**30


class TermsError(SettingsError):
    """What a server asks is beyond a client's terms."""


class Terms(SettingsTable):  # numpydoc ignore=PR01
    """What a client accepts. The defaults take all presets but those that reproduce a publication."""

    learners: list[Annotated[str, NameIn(LEARNERS)]] = Field(sorted(LEARNERS), description="learners that it runs")
    coders: list[Annotated[str, NameIn(CODERS)]] = Field(sorted(CODERS), description="coders that it runs")
    aggregations: list[Annotated[str, NameIn(AGGREGATIONS)]] = Field(
        sorted(AGGREGATIONS), description="aggregations for which it sends its atoms"
    )
    privacy: list[Mode] = Field(
        ["guarded", "aggregated", "masked", "private"], description="modes of privacy that it takes part in"
    )
    samples_per_atom: float = Field(0.5, ge=0, description="its samples must be at least so many times n_atoms")
    samples_per_global: float = Field(2.0, ge=0, description="its samples must be at least so many times n_global")
    min_samples: int = Field(
        MIN_SAMPLES,
        ge=1,
        description="samples that must use an atom before it moves or is sent, even if the server asks for fewer",
    )
    rounds: int = Field(500, ge=0, description="most rounds of a run; rounds that are asked again count")
    restarts: int = Field(100, ge=0, description="most random starts, of a first dictionary and of its own atoms")
    steps: int = Field(1000, ge=0, description="most warm-up and refine steps")
    memory: float = Field(16.0, gt=0, description="most memory of a run beside its file, in GiB, as estimated")
    seconds: float = Field(86400.0, gt=0, description="longest time to compute for a run, as estimated for one core")
    trials: int = Field(300, ge=0, description="most trials of a search of settings; each may have so many rounds")
    runs: int = Field(50, ge=0, description="how many runs its data may serve in all, with any server")
    first_dictionaries: int = Field(200, ge=0, description="how many first dictionaries of its data it sends in all")
    epsilon: float = Field(20.0, ge=0, description="how much epsilon its data may spend in all, in private runs")
    delta: float = Field(1e-4, ge=0, lt=1, description="how much delta its data may spend in all, in private runs")

    def check_settings(self, settings: Settings, learning: LearningSettings, name: str) -> None:
        """Refuse what can be refused without looking at the data.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        learning : LearningSettings
            How this client would learn.
        name : str
            The client's name, for errors.

        Raises
        ------
        TermsError
            It names the setting, what is asked, what is allowed, and the cure.
        """
        for setting, asked, term in (
            ("learner", learning.learner, "learners"),
            ("coder", learning.coder, "coders"),
            ("aggregation", settings.aggregation, "aggregations"),
            ("privacy.mode", settings.privacy.mode, "privacy"),
        ):
            allowed = getattr(self, term)
            if asked not in allowed:
                choice = " or ".join(f'"{one}"' for one in allowed) or "none at all"
                self._refuse(name, f'{setting} = "{asked}"', choice, f"set {setting} to one of them", term)
        for setting, number, term in (
            ("rounds", settings.rounds, "rounds"),
            ("n_restarts", learning.n_restarts, "restarts"),
            ("local_restarts", learning.local_restarts, "restarts"),
            ("warmup_steps", learning.warmup_steps, "steps"),
            ("refine_steps", learning.refine_steps, "steps"),
            ("local_steps", learning.local_steps, "steps"),
        ):
            if number > getattr(self, term):
                self._refuse(name, f"{setting} = {number}", f"at most {getattr(self, term)}", f"lower {setting}", term)

    def check_size(
        self, settings: Settings, learning: LearningSettings, d: int, n: int, name: str, in_memory: bool = True
    ) -> None:
        """Refuse what asks too much of so many samples, or costs too much.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        learning : LearningSettings
            How this client would learn.
        d, n : int
            Number of features and of samples.
        name : str
            The client's name, for errors.
        in_memory : bool
            Whether all samples are in memory at once.

        Raises
        ------
        TermsError
            It names the setting, what is asked, what is allowed, and the cure.
        """
        r = learning.n_atoms or d
        self._check_atoms("n_atoms", r, n, "samples_per_atom", name)
        if isinstance(settings.n_global, int):
            self.check_global(settings.n_global, n, name)
        memory, seconds = cost(settings, learning, d, n, in_memory)
        for what, asked, term in (("GiB of memory", memory / _GIB, "memory"), ("seconds", seconds, "seconds")):
            allowed = getattr(self, term)
            if asked > allowed:
                cure = "lower rounds, n_restarts, warmup_steps or n_atoms" if term == "seconds" else "lower n_atoms"
                self._refuse(name, f"about {asked:.3g} {what}", f"at most {allowed:g}", cure, term)

    def check_global(self, n_global: int, n: int, name: str) -> None:
        """Refuse too many global atoms for so many samples.

        Parameters
        ----------
        n_global : int
            Number of global atoms.
        n : int
            Number of samples.
        name : str
            The client's name, for errors.

        Raises
        ------
        TermsError
            It names the numbers and the cure.
        """
        self._check_atoms("n_global", n_global, n, "samples_per_global", name)

    def _check_atoms(self, setting: str, asked: int, n: int, term: str, name: str) -> None:
        least = getattr(self, term)
        if n < least * asked:
            allowed = f"at most {int(n / least)} ({least:g} samples an atom, of {n})"
            self._refuse(name, f"{setting} = {asked}", allowed, f"lower {setting}", term)

    def _refuse(self, name: str, asked: str, allowed: str, cure: str, term: str) -> None:
        raise TermsError(
            f"{name} does not accept {asked}: its terms allow {allowed}; {cure}, {_CURE.format(term=term)}"
        )

    def toml(self) -> str:
        """Return the terms as a TOML file that tells what each is."""
        lines = [
            f"{name} = {json.dumps(getattr(self, name))}  # {field.description}"
            for name, field in type(self).model_fields.items()
        ]
        return "\n".join(lines)


def cost(settings: Settings, learning: LearningSettings, d: int, n: int, in_memory: bool = True) -> tuple[float, float]:
    """Estimate what a run costs a client.

    A step of a learner takes three products of the size d n r, as much for every atom with the projected learner, and
    a decomposition of (d, r). Pursuit adds a small system for each atom that a sample uses.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    learning : LearningSettings
        How this client would learn.
    d, n : int
        Number of features and of samples.
    in_memory : bool
        Whether all samples are in memory at once.

    Returns
    -------
    bytes, seconds : float
        Upper estimates, the memory without the file of samples.
    """
    r, width = learning.n_atoms or d, 8 if settings.dtype == "float64" else 4
    few = n if settings.privacy.mode == "private" else min(n, at_most(d, r))  # samples of starts
    # A restart that finds nothing doubles the wait for the next.
    tries = settings.rounds.bit_length() if learning.local_restarts else 0
    starts = (learning.n_restarts + tries * learning.local_restarts) * (learning.warmup_steps + 1)
    steps = settings.rounds * (1 + learning.local_steps + learning.refine_steps)
    products = 3 * (r if LEARNERS[learning.learner].atom_by_atom else 1)
    used = (
        min(learning.n_nonzero if learning.counts_atoms else d, r) if learning.coder.startswith(("omp", "ols")) else 0
    )

    def operations(n: int) -> float:
        products_and_codes = 2.0 * products * d * n * r + 2.0 * used * n * (r * used + used**3)
        return products_and_codes + 20.0 * max(d, r) * min(d, r) ** 2

    held = n if in_memory else few
    memory = width * (5.0 * d * held + 8.0 * r * held + (learning.n_restarts + 6.0) * d * r)
    return memory, (steps * operations(n) + starts * operations(few)) / _FLOPS


def load_terms(path: Path | None, own: Mapping[str, Any] | None = None) -> Terms:
    """Read terms from TOML. Without a file the defaults apply.

    Parameters
    ----------
    path : Path, optional
        TOML file.
    own : mapping, optional
        Terms that win over the file's.

    Returns
    -------
    Terms

    Raises
    ------
    SettingsError
        One line that names file, term, value and what is allowed.
    """
    values: dict[str, Any] = {}
    if path is not None:
        text = ""
        try:
            text = path.read_text(encoding="utf-8")
            values = tomllib.loads(text)
        except OSError as error:
            raise SettingsError(f"cannot read the terms {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is not valid TOML: {toml_error(text, str(error))}") from None
    try:
        return Terms.model_validate({**values, **(own or {})})
    except ValidationError as error:
        where = f"{path}: " if path is not None else ""
        raise SettingsError(where + first_error(Terms, error.errors(include_url=False), Terms)) from None


DEFAULT_TERMS = Terms()
