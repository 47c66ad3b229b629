"""Read HDF5 files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from perdl_client.file_checks import choose_array, file_error, reading, require_package, require_samples


def read_hdf5(path: Path, variable: str | None) -> NDArray[Any]:
    """Return the only dataset that can be samples, or the one named ``variable``, such as ``group/x``."""
    require_package(path, "h5py", extra="hdf5")
    import h5py

    with reading(path, "an HDF5 file"):
        if not h5py.is_hdf5(path):
            raise file_error(path, "is not an HDF5 file, or is damaged or cut short; copy or export it again")
        with h5py.File(path, "r") as file:
            datasets: dict[str, Any] = {}

            def note(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.shape is not None:
                    datasets[name] = item

            file.visititems(note)
            listing = {name: (item.shape, item.dtype.name) for name, item in datasets.items()}
            name = choose_array(path, listing, variable.strip("/") if variable else None)
            require_samples(path, datasets[name].shape, datasets[name].dtype, name)
            table: NDArray[Any] = datasets[name][()]
            return table
